"""Transactions through SQLAlchemy: for listeners that ask for a session, and for workers given an engine."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, TypeAlias

from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, create_async_engine

from outbox.drivers import recognise
from outbox.drivers.driver import Row
from outbox.drivers.statement import Statement
from outbox.listener import Listener
from outbox_core.database import Database, is_lost
from outbox_worker.connections import limit_idling
from outbox_worker.errors import InterruptedCallError, TransactionAbortedError, TransactionEndedError
from outbox_worker.inbox import Inbox, check_id, fetch
from outbox_worker.transactions import (
    END_SECONDS,
    ERRORS,
    NOTE_SECONDS,
    OPEN_SECONDS,
    DatabaseAwayError,
    Entry,
    MessageBusyError,
    away,
    causes,
)

_Door: TypeAlias = AsyncSession | AsyncConnection
_ERRORS = (SQLAlchemyError, *ERRORS)
_FAILED_TRANSACTION = "25P02"
_READ_ONLY = "25006"
_TRANSIENT = ("40", "53", "55P03", "57")
"""SQLSTATEs that `Database.is_passing` recognises by asyncpg's classes: serialization failure or deadlock, no
resources, lock not available, intervention of an operator."""


class SqlAlchemyTransactions:
    """Transactions on the connections of an engine."""

    def __init__(
        self,
        engine: AsyncEngine,
        database: Database,
        inbox: Inbox,
        *,
        limits: Sequence[str] = (),
        owned: bool = False,
    ) -> None:
        """`database` is where the engine connects to. One that is `owned` is disposed of in the end.

        `limits` are statements with which the transaction of each message begins.
        """
        self._engine = engine
        # The level of a listener's transaction is the application's choice, and that of all others is ours.
        self._read_committed = engine.execution_options(isolation_level="READ COMMITTED")
        self._limits = limits
        self._database = database
        self._inbox = inbox
        self._owned = owned

    @contextlib.asynccontextmanager
    async def begin(self, queue: str, message_id: str, *, session: bool = False) -> AsyncIterator[Entry]:
        check_id(message_id)
        failed: Exception | None = None
        async with contextlib.AsyncExitStack() as stack:
            try:
                door: _Door
                # Also where the engine looks at a connection first (pool_pre_ping).
                async with asyncio.timeout(OPEN_SECONDS):
                    if session:
                        door = await stack.enter_async_context(AsyncSession(self._engine))
                        connection = await door.connection()
                    else:
                        door = connection = await stack.enter_async_context(self._engine.connect())
                    for limit in self._limits:
                        await connection.exec_driver_sql(limit)
                async with _discarded_if_read_only(connection):
                    noted = await self._noted(door, queue, message_id)
                entry = await _entry(door, is_duplicate=not noted)
            except _ERRORS as error:
                raise away(self._database, error) from error
            try:
                yield entry
            except Exception as error:
                if await self._roll_back(door, connection, noted, error):
                    raise
                failed = error
            else:
                if noted:
                    await self._commit(door, noted)
        # Only now is there a connection to ask by, where there is but one.
        if failed is not None:
            await self._check_note(noted, failed)
            raise failed

    async def _noted(self, door: _Door, queue: str, message_id: str) -> list[Row]:
        try:
            async with asyncio.timeout(NOTE_SECONDS):
                return await fetch(door, self._inbox.note, queue, message_id)
        except TimeoutError:
            raise MessageBusyError(queue, message_id) from None

    async def was_handled(self, queue: str, message_id: str) -> bool:
        check_id(message_id)
        return bool(await self._send(self._inbox.find, queue, message_id))

    async def note_handled(self, queue: str, message_id: str) -> None:
        check_id(message_id)
        await self._send(self._inbox.note, queue, message_id)

    async def forget(self, queue: str, message_id: str) -> None:
        await self._send(self._inbox.forget, queue, message_id)

    def problems(self, listeners: Iterable[Listener[..., Any]]) -> list[str]:
        driver = self._engine.dialect.driver
        if driver == "asyncpg":
            return []
        return [
            f"{listener.queue}: it asks for a connection, which is asyncpg's, and db_engine is on {driver}; "
            "ask for session, or give the worker db_engine_url or an engine on postgresql+asyncpg"
            for listener in listeners
            if "connection" in listener.arguments.context
        ]

    async def open(self) -> None:
        async with self._lent():
            pass

    async def create(self) -> None:
        async with self._lent() as connection:
            await self._inbox.create(connection)

    async def check(self) -> list[str]:
        async with self._lent(self._engine) as connection:
            found = await self._inbox.check(connection)
            if recognise(connection).autocommits(connection):
                found.append("db_engine commits each statement by itself; give one without AUTOCOMMIT")
            return found

    async def purge(self, older_than_seconds: float, limit: int) -> int:
        async with self._lent() as connection:
            return await self._inbox.purge(connection, older_than_seconds, limit)

    async def aclose(self) -> None:
        if self._owned:
            await self._engine.dispose()

    async def _send(self, statement: Statement, *args: object) -> list[Row]:
        """Send a statement of a message's, which is not to blame for whatever happens."""
        try:
            async with (
                asyncio.timeout(OPEN_SECONDS),
                self._read_committed.begin() as connection,
                _discarded_if_read_only(connection),
            ):
                return await fetch(connection, statement, *args)
        except _ERRORS as error:
            raise away(self._database, error) from error

    @contextlib.asynccontextmanager
    async def _lent(self, engine: AsyncEngine | None = None) -> AsyncIterator[AsyncConnection]:
        """A connection in a transaction, for work that a person may have to help with."""
        try:
            async with (
                asyncio.timeout(OPEN_SECONDS),
                (engine or self._read_committed).begin() as connection,
                _discarded_if_read_only(connection),
            ):
                yield connection
        except _ERRORS as error:
            if self._is_passing(error):
                raise away(self._database, error) from error
            raise

    async def _commit(self, door: _Door, noted: list[Row]) -> None:
        try:
            async with asyncio.timeout(END_SECONDS):
                if isinstance(door, AsyncSession):
                    await door.flush()
                if await fetch(door, self._inbox.transaction) != noted:
                    raise TransactionEndedError("commit and rollback")
                await door.commit()
        except _ERRORS as error:
            if self._is_passing(error):
                raise away(self._database, error, has_run=True) from error
            if _sqlstate(error) == _FAILED_TRANSACTION:
                raise TransactionAbortedError(
                    "a statement of the listener has failed and the listener went on, though Postgres has "
                    "rolled its transaction back; let the error out, or put the statement into a savepoint: "
                    "async with session.begin_nested()"
                ) from error
            raise

    async def _roll_back(
        self, door: _Door, connection: AsyncConnection, noted: list[Row], error: Exception
    ) -> bool:
        """Roll back after the listener's error; False if what became of the transaction is not known.

        Raises `TransactionEndedError` if the listener has committed the note.
        """
        is_broken = connection.invalidated
        try:
            async with asyncio.timeout(END_SECONDS):
                if isinstance(error, InterruptedCallError):
                    # What the listener has begun may still use the connection: it ends within the
                    # transaction, and a session must not begin another one.
                    await connection.invalidate()
                    if isinstance(door, AsyncSession):
                        door.sync_session.bind = None
                    return False
                await door.rollback()
                if noted and await fetch(door, self._inbox.committed, noted[0][0]):
                    raise TransactionEndedError("commit and rollback") from error
        except _ERRORS:
            return False
        return not is_broken

    async def _check_note(self, noted: list[Row], error: Exception) -> None:
        """Raise `TransactionEndedError` if the listener has committed the note before it failed, and that the
        database is away if that is what the error is about."""
        try:
            is_committed = noted and await self._send(self._inbox.committed, noted[0][0])
        except DatabaseAwayError as problem:
            raise DatabaseAwayError(str(problem), has_run=True) from error
        if is_committed:
            raise TransactionEndedError("commit and rollback") from error
        if _tells_of_loss(error):
            raise away(self._database, error, has_run=True) from error

    def _is_passing(self, error: Exception) -> bool:
        return (
            _tells_of_loss(error)
            or any(map(self._database.is_passing, causes(error)))
            or (_sqlstate(error) or "").startswith(_TRANSIENT)
        )


def engine_of(database: Database, size: int, longest_seconds: float | None) -> AsyncEngine:
    """An engine of our own, on connections as the database's others are."""

    async def connected() -> Any:
        connection = await database.connect("outbox-worker")
        await limit_idling(connection, database, longest_seconds)
        return connection

    def connect() -> Any:
        dbapi: Any = engine.dialect.dbapi
        if not database.pooled:
            return dbapi.connect(async_creator_fn=connected)
        return dbapi.connect(
            async_creator_fn=connected,
            prepared_statement_cache_size=0,
            # A name that nobody else has: the pooler's sessions are everybody's.
            prepared_statement_name_func=lambda: f"outbox_{uuid.uuid4().hex}",
        )

    engine = create_async_engine("postgresql+asyncpg://", creator=connect, pool_size=size, max_overflow=0)
    return engine


@contextlib.asynccontextmanager
async def _discarded_if_read_only(connection: AsyncConnection) -> AsyncIterator[None]:
    """Keep a session whose server is a standby now out of the pool."""
    try:
        yield
    except DBAPIError as error:
        if _sqlstate(error) == _READ_ONLY:
            await connection.invalidate()
        raise


async def _entry(door: _Door, *, is_duplicate: bool) -> Entry:
    if is_duplicate:
        return Entry(is_duplicate=True)
    if isinstance(door, AsyncSession):
        return Entry(is_duplicate=False, session=door)
    return Entry(is_duplicate=False, connection=(await door.get_raw_connection()).driver_connection)


def _tells_of_loss(error: BaseException) -> bool:
    return any(
        is_lost(cause)
        or (isinstance(cause, DBAPIError) and cause.connection_invalidated)
        or _sqlstate(cause) == _READ_ONLY
        for cause in causes(error)
    )


def _sqlstate(error: BaseException) -> str | None:
    return getattr(error.orig, "sqlstate", None) if isinstance(error, DBAPIError) else None
