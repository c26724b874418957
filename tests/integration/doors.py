"""The ways into Postgres that an application may have, each behind the same few verbs.

A door is one session of one driver. The blocking ones run on a thread of their own, so that a test can hold
two transactions open at once whatever the driver.
"""

import asyncio
import contextlib
import contextvars
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar
from urllib.parse import urlsplit

import asyncpg
import django
import psycopg
import psycopg2
from django.conf import settings as django_settings
from django.db import connection as django_connection
from django.db import connections as django_connections
from django.db import transaction as django_transaction
from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.ext.asyncio import (
    AsyncConnection,
    AsyncEngine,
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from outbox import Emitter, OutboxMessage, SyncEmitter


class Door(ABC):
    """One session, and the emitter that fits it."""

    label: ClassVar[str]

    def __init__(self, url: str, **emitter_options: Any) -> None:
        self.url = url
        self.emitter_options = emitter_options
        self.session: Any = None

    @abstractmethod
    async def open(self) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    async def begin(self) -> None: ...

    @abstractmethod
    async def commit(self) -> None: ...

    @abstractmethod
    async def rollback(self) -> None: ...

    @abstractmethod
    async def execute(self, sql: str) -> None:
        """Run a statement of the application's own in the same transaction."""

    @abstractmethod
    async def emit(self, routing_key: str, body: Any, **options: Any) -> Any: ...

    @abstractmethod
    async def bulk_emit(self, messages: Sequence[OutboxMessage]) -> Any: ...

    @abstractmethod
    async def cancel_timer(self, routing_key: str, timer_id: str) -> bool: ...

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator["Door"]:
        await self.begin()
        try:
            yield self
        except BaseException:
            await self.rollback()
            raise
        await self.commit()


class AsyncDoor(Door):
    def __init__(self, url: str, **emitter_options: Any) -> None:
        super().__init__(url, **emitter_options)
        self.emitter = Emitter(**emitter_options)

    async def emit(self, routing_key: str, body: Any, **options: Any) -> Any:
        return await self.emitter.emit(self.session, routing_key, body, **options)

    async def bulk_emit(self, messages: Sequence[OutboxMessage]) -> Any:
        return await self.emitter.bulk_emit(self.session, messages)

    async def cancel_timer(self, routing_key: str, timer_id: str) -> bool:
        return await self.emitter.cancel_timer(self.session, routing_key, timer_id)


class SyncDoor(Door):
    def __init__(self, url: str, **emitter_options: Any) -> None:
        super().__init__(url, **emitter_options)
        self.emitter = SyncEmitter(**emitter_options)
        self._thread = ThreadPoolExecutor(max_workers=1)

    async def on_thread(self, call: Callable[..., Any], *args: Any) -> Any:
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(self._thread, context.run, call, *args)

    async def open(self) -> None:
        await self.on_thread(self._open)

    async def close(self) -> None:
        await self.on_thread(self._close)
        self._thread.shutdown()

    async def begin(self) -> None:
        await self.on_thread(self._begin)

    async def commit(self) -> None:
        await self.on_thread(self._commit)

    async def rollback(self) -> None:
        await self.on_thread(self._rollback)

    async def execute(self, sql: str) -> None:
        await self.on_thread(self._execute, sql)

    async def emit(self, routing_key: str, body: Any, **options: Any) -> Any:
        return await self.on_thread(lambda: self.emitter.emit(self.session, routing_key, body, **options))

    async def bulk_emit(self, messages: Sequence[OutboxMessage]) -> Any:
        return await self.on_thread(self.emitter.bulk_emit, self.session, messages)

    async def cancel_timer(self, routing_key: str, timer_id: str) -> bool:
        found: bool = await self.on_thread(self.emitter.cancel_timer, self.session, routing_key, timer_id)
        return found

    @abstractmethod
    def _open(self) -> None: ...

    @abstractmethod
    def _close(self) -> None: ...

    def _begin(self) -> None:
        """Most drivers begin with the first statement."""

    @abstractmethod
    def _commit(self) -> None: ...

    @abstractmethod
    def _rollback(self) -> None: ...

    @abstractmethod
    def _execute(self, sql: str) -> None: ...


class Asyncpg(AsyncDoor):
    label = "asyncpg connection"

    async def open(self) -> None:
        self.session = await asyncpg.connect(self.url)

    async def close(self) -> None:
        await self.session.close()

    async def begin(self) -> None:
        self._transaction = self.session.transaction()
        await self._transaction.start()

    async def commit(self) -> None:
        await self._transaction.commit()

    async def rollback(self) -> None:
        await self._transaction.rollback()

    async def execute(self, sql: str) -> None:
        await self.session.execute(sql)


class AsyncpgPool(Asyncpg):
    label = "asyncpg connection of a pool"

    async def open(self) -> None:
        self._pool = await asyncpg.create_pool(self.url, min_size=1, max_size=1)
        self.session = await self._pool.acquire()

    async def close(self) -> None:
        await self._pool.release(self.session)
        await self._pool.close()


class AsyncPsycopg(AsyncDoor):
    label = "psycopg async connection"

    async def open(self) -> None:
        self._connection = await psycopg.AsyncConnection.connect(self.url)
        self.session = self._connection

    async def close(self) -> None:
        await self._connection.close()

    async def begin(self) -> None:
        """The first statement begins."""

    async def commit(self) -> None:
        await self._connection.commit()

    async def rollback(self) -> None:
        await self._connection.rollback()

    async def execute(self, sql: str) -> None:
        await self._connection.execute(sql.encode())


class AsyncPsycopgCursor(AsyncPsycopg):
    label = "psycopg async cursor"

    async def open(self) -> None:
        await super().open()
        self.session = self._connection.cursor()


class AsyncSqlAlchemyConnection(AsyncDoor):
    label = "SQLAlchemy AsyncConnection"
    dialect = "postgresql+asyncpg"
    engine: AsyncEngine
    connection: AsyncConnection

    async def open(self) -> None:
        self.engine = create_async_engine(self.url.replace("postgresql", self.dialect, 1))
        self.connection = self.session = await self.engine.connect()

    async def close(self) -> None:
        await self.session.close()
        await self.engine.dispose()

    async def begin(self) -> None:
        """The first statement begins."""

    async def commit(self) -> None:
        await self.session.commit()

    async def rollback(self) -> None:
        await self.session.rollback()

    async def execute(self, sql: str) -> None:
        await self.connection.exec_driver_sql(sql)


class AsyncSqlAlchemySession(AsyncSqlAlchemyConnection):
    label = "SQLAlchemy AsyncSession on asyncpg"

    async def open(self) -> None:
        self.engine = create_async_engine(self.url.replace("postgresql", self.dialect, 1))
        self.session = self.make_session()

    def make_session(self) -> Any:
        return AsyncSession(self.engine)

    async def execute(self, sql: str) -> None:
        await (await self.session.connection()).exec_driver_sql(sql)


class AsyncSqlAlchemyPsycopg(AsyncSqlAlchemySession):
    label = "SQLAlchemy AsyncSession on psycopg"
    dialect = "postgresql+psycopg"


class AsyncSqlAlchemyScoped(AsyncSqlAlchemySession):
    label = "SQLAlchemy async_scoped_session"

    def make_session(self) -> Any:
        return async_scoped_session(async_sessionmaker(self.engine), scopefunc=lambda: id(self))


class Psycopg(SyncDoor):
    label = "psycopg connection"
    connection: Any

    def _open(self) -> None:
        self.connection = self.session = psycopg.connect(self.url)

    def _close(self) -> None:
        self.connection.close()

    def _commit(self) -> None:
        self.connection.commit()

    def _rollback(self) -> None:
        self.connection.rollback()

    def _execute(self, sql: str) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute(sql)


class PsycopgCursor(Psycopg):
    label = "psycopg cursor"

    def _open(self) -> None:
        super()._open()
        self.session = self.connection.cursor()


class Psycopg2(Psycopg):
    label = "psycopg2 connection"

    def _open(self) -> None:
        self.connection = self.session = psycopg2.connect(self.url)


class Psycopg2Cursor(Psycopg2):
    label = "psycopg2 cursor"

    def _open(self) -> None:
        super()._open()
        self.session = self.connection.cursor()


class SqlAlchemyConnection(SyncDoor):
    label = "SQLAlchemy Connection"
    dialect = "postgresql+psycopg"
    engine: Engine

    def _open(self) -> None:
        self.engine = create_engine(self.url.replace("postgresql", self.dialect, 1))
        self.session = self.make_session()

    def make_session(self) -> Any:
        return self.engine.connect()

    def _close(self) -> None:
        self.session.close()
        self.engine.dispose()

    def _commit(self) -> None:
        self.session.commit()

    def _rollback(self) -> None:
        self.session.rollback()

    def connection(self) -> Connection:
        connection: Connection = self.session
        return connection

    def _execute(self, sql: str) -> None:
        self.connection().exec_driver_sql(sql)


class SqlAlchemySession(SqlAlchemyConnection):
    label = "SQLAlchemy Session on psycopg"

    def make_session(self) -> Any:
        return Session(self.engine)

    def connection(self) -> Connection:
        connection: Connection = self.session.connection()
        return connection


class SqlAlchemyPsycopg2(SqlAlchemySession):
    label = "SQLAlchemy Session on psycopg2"
    dialect = "postgresql+psycopg2"


class SqlAlchemyScoped(SqlAlchemySession):
    label = "SQLAlchemy scoped_session"

    def make_session(self) -> Any:
        return scoped_session(sessionmaker(self.engine))


class DjangoAlias(SyncDoor):
    """Django keeps its connections per thread, and a door has a thread of its own."""

    label = "Django alias"

    def _open(self) -> None:
        if not django_settings.configured:
            django_settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.postgresql"}})
            django.setup()
        parts = urlsplit(self.url)
        django_connections.databases["default"].update(
            NAME=parts.path[1:],
            USER=parts.username,
            PASSWORD=parts.password,
            HOST=parts.hostname,
            PORT=parts.port,
        )
        self.session = self.pick()

    def pick(self) -> Any:
        return "default"

    def _close(self) -> None:
        django_connections["default"].close()

    def _begin(self) -> None:
        self._atomic = django_transaction.atomic()
        self._atomic.__enter__()

    def _commit(self) -> None:
        self._atomic.__exit__(None, None, None)

    def _rollback(self) -> None:
        reason = RuntimeError("roll back")
        self._atomic.__exit__(RuntimeError, reason, None)

    def _execute(self, sql: str) -> None:
        with django_connections["default"].cursor() as cursor:
            cursor.execute(sql)


class DjangoConnection(DjangoAlias):
    label = "Django connection"

    def pick(self) -> Any:
        return django_connections["default"]


class DjangoProxy(DjangoAlias):
    label = "Django default connection"

    def pick(self) -> Any:
        return django_connection


DOORS: tuple[type[Door], ...] = (
    AsyncSqlAlchemySession,
    AsyncSqlAlchemyPsycopg,
    AsyncSqlAlchemyScoped,
    AsyncSqlAlchemyConnection,
    SqlAlchemySession,
    SqlAlchemyPsycopg2,
    SqlAlchemyScoped,
    SqlAlchemyConnection,
    Asyncpg,
    AsyncpgPool,
    AsyncPsycopg,
    AsyncPsycopgCursor,
    Psycopg,
    PsycopgCursor,
    Psycopg2,
    Psycopg2Cursor,
    DjangoAlias,
    DjangoConnection,
    DjangoProxy,
)
