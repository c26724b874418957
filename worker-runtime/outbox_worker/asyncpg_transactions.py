"""Transactions through asyncpg, on connections of our own.

We send BEGIN and COMMIT ourselves: BEGIN in one round trip with the note, and COMMIT in one with the check
that the transaction is still the one we began. A savepoint marks it: it ends with the transaction, is unknown
in any that the listener began instead (COMMIT AND CHAIN), and can be asked for after a statement has failed.
Its name is one that no listener knows.

We rely on one thing beyond asyncpg's API, which `test_a_listener_may_open_savepoints` pins: while the
connection has a `_top_xact`, `connection.transaction()` is a savepoint within it.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from functools import cached_property, partial
from importlib.util import find_spec
from types import TracebackType
from typing import TYPE_CHECKING, Any

import asyncpg

from outbox.listener import Listener
from outbox_core.database import Database, is_lost
from outbox_core.plaintext import database_warning, is_plain
from outbox_worker.connections import Connections, idle_limit
from outbox_worker.errors import InterruptedCallError, TransactionAbortedError, TransactionEndedError
from outbox_worker.inbox import Inbox
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

if TYPE_CHECKING:
    from outbox_worker.sqlalchemy_transactions import SqlAlchemyTransactions

_log = logging.getLogger("outbox.worker")

_DUPLICATE = Entry(is_duplicate=True)
_SAVEPOINT = f"outbox_{secrets.token_hex(8)}"
_BEGIN = f"BEGIN; SAVEPOINT {_SAVEPOINT}"
_COMMIT = f"RELEASE SAVEPOINT {_SAVEPOINT}; COMMIT"
_UNDO = f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}"
_ROLL_BACK = f"{_UNDO}; ROLLBACK"
_READ_COMMITTED = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"
_ENDED = (asyncpg.InvalidSavepointSpecificationError, asyncpg.NoActiveSQLTransactionError)
"""There is no such savepoint: the transaction that we began is over."""


class AsyncpgTransactions:
    """Transactions on a database that is told by its URL."""

    def __init__(self, database: Database, inbox: Inbox, size: int, longest_seconds: float | None) -> None:
        self._database = database
        self._inbox = inbox
        self._size = size
        self._longest_seconds = longest_seconds
        self._connections = Connections(database, size, "outbox-worker", longest_seconds)

    def begin(
        self, queue: str, message_id: str, *, session: bool = False
    ) -> AbstractAsyncContextManager[Entry]:
        if session:
            return self._sessions.begin(queue, message_id, session=True)
        opening = "; ".join([_BEGIN, *self._limits(), self._inbox.note_text(queue, message_id)])
        busy = MessageBusyError(queue, message_id)
        is_noted = partial(self.was_handled, queue, message_id)
        return _Transaction(self._database, self._connections, opening, is_noted, busy)

    async def was_handled(self, queue: str, message_id: str) -> bool:
        return await self._send(self._inbox.find_text(queue, message_id)) != "SELECT 0"

    async def note_handled(self, queue: str, message_id: str) -> None:
        await self._send(self._inbox.note_text(queue, message_id))

    async def forget(self, queue: str, message_id: str) -> None:
        await self._send(self._inbox.forget_text(queue, message_id))

    def problems(self, listeners: Iterable[Listener[..., Any]]) -> list[str]:
        if find_spec("sqlalchemy") is not None:
            return []
        return [
            f"{listener.queue}: it asks for a session, and SQLAlchemy is not installed; "
            "pip install 'sqlalchemy[asyncio]', or ask for connection"
            for listener in listeners
            if "session" in listener.arguments.context
        ]

    async def open(self) -> None:
        async with self._lent() as connection:
            if is_plain(connection):
                _log.warning(database_warning(self._database.where))

    async def create(self) -> None:
        async with self._lent() as connection:
            await self._inbox.create(connection)

    async def check(self) -> list[str]:
        async with self._lent() as connection:
            return await self._inbox.check(connection)

    async def purge(self, older_than_seconds: float, limit: int) -> int:
        async with self._lent() as connection:
            return await self._inbox.purge(connection, older_than_seconds, limit)

    async def aclose(self) -> None:
        await self._connections.aclose()
        if "_sessions" in self.__dict__:
            await self._sessions.aclose()

    def _limits(self) -> list[str]:
        """What each transaction sets for itself, since a pooler gives it a session that has no limit."""
        if self._longest_seconds is None or not self._database.pooled:
            return []
        return [idle_limit(self._longest_seconds, is_local=True)]

    @cached_property
    def _sessions(self) -> "SqlAlchemyTransactions":
        # SQLAlchemy need not be there for listeners that do not ask for it.
        from outbox_worker.sqlalchemy_transactions import SqlAlchemyTransactions, engine_of

        engine = engine_of(self._database, self._size, self._longest_seconds)
        return SqlAlchemyTransactions(engine, self._database, self._inbox, limits=self._limits(), owned=True)

    async def _send(self, sql: str) -> str:
        """Send a statement of a message's, which is not to blame for whatever happens."""
        try:
            connection = await self._connections.take()
        except ERRORS as error:
            raise away(self._database, error) from error
        try:
            # One text is one transaction, of which SET TRANSACTION has to be the first statement.
            status: str = await connection.execute(f"{_READ_COMMITTED}; {sql}", timeout=OPEN_SECONDS)
        except ERRORS as error:
            self._connections.drop(connection)
            raise away(self._database, error) from error
        except BaseException:
            self._connections.drop(connection)
            raise
        self._connections.give_back(connection)
        return status

    @contextlib.asynccontextmanager
    async def _lent(self) -> AsyncIterator[Any]:
        """A connection in a transaction, for work that a person may have to help with."""
        try:
            connection = await self._connections.take()
            try:
                transaction = connection.transaction(isolation="read_committed")
                async with asyncio.timeout(OPEN_SECONDS), transaction:
                    yield connection
            except ERRORS as error:
                if is_lost(error):
                    # It may be open, on a server that is a standby now.
                    connection.terminate()
                raise
            finally:
                self._connections.give_back(connection)
        except ERRORS as error:
            if self._database.is_passing(error):
                raise away(self._database, error) from error
            raise


class _Transaction:
    """One transaction, from BEGIN to COMMIT or ROLLBACK."""

    def __init__(
        self,
        database: Database,
        connections: Connections,
        opening: str,
        is_noted: Callable[[], Awaitable[bool]],
        busy: MessageBusyError,
    ) -> None:
        """`opening` begins it with the note, `is_noted` looks for one on another connection, and `busy` is
        raised if another worker has the message."""
        self._database = database
        self._connections = connections
        self._opening = opening
        self._is_noted = is_noted
        self._busy = busy
        self._connection: Any = None

    async def __aenter__(self) -> Entry:
        try:
            connection = await self._connections.take()
        except ERRORS as error:
            raise away(self._database, error) from error
        try:
            status = await self._begin(connection)
            if status != "INSERT 0 1":
                await connection.execute("ROLLBACK", timeout=END_SECONDS)
        except ERRORS as error:
            self._connections.drop(connection)
            raise away(self._database, error) from error
        except BaseException:
            self._connections.drop(connection)
            raise
        if status != "INSERT 0 1":
            self._connections.give_back(connection)
            if status is None:
                raise self._busy
            return _DUPLICATE
        connection._top_xact = connection.transaction()
        self._connection = connection
        return Entry(is_duplicate=False, connection=connection)

    async def _begin(self, connection: Any) -> str | None:
        """What became of the note: one row, none where there is one already, or None while it waits."""
        try:
            status: str = await connection.execute(self._opening, timeout=NOTE_SECONDS)
        except TimeoutError:
            # asyncpg has the server cancel the statement, and waits for that before the next one.
            return None
        return status

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        connection = self._connection
        if connection is None:  # a duplicate
            return
        connection._top_xact = None
        is_rolled_back = True
        try:
            if error is None:
                await self._commit(connection)
            else:
                is_rolled_back = await self._roll_back(connection, error)
        except BaseException:
            self._connections.drop(connection)
            raise
        self._connections.give_back(connection)
        # An interrupted attempt stays one, whatever it did before.
        if not is_rolled_back and isinstance(error, Exception):
            await self._check_note(error)

    async def _commit(self, connection: Any) -> None:
        try:
            await connection.execute(_COMMIT, timeout=END_SECONDS)
        except _ENDED as error:
            raise TransactionEndedError from error
        except asyncpg.InFailedSQLTransactionError as error:
            raise TransactionAbortedError(
                "a statement of the listener has failed and the listener went on, though Postgres has rolled "
                "its transaction back; let the error out, or put the statement into a savepoint: "
                "async with connection.transaction()"
            ) from error
        except ERRORS as error:
            if self._database.is_passing(error):
                raise away(self._database, error, has_run=True) from error
            raise

    async def _roll_back(self, connection: Any, error: BaseException) -> bool:
        """Roll back after the listener's error; False if the listener has ended the transaction before.

        Raises that the database is away if that is what the error is about.
        """
        is_in_transaction = connection.is_in_transaction()
        is_interrupted = isinstance(error, InterruptedCallError | asyncio.CancelledError)
        try:
            if is_interrupted:
                # What the listener has begun may still use the connection: it ends within the transaction.
                await connection.execute(_UNDO, timeout=END_SECONDS)
                connection.terminate()
            else:
                await connection.execute(_ROLL_BACK, timeout=END_SECONDS)
        except _ENDED:
            connection.terminate()
            return False
        except ERRORS:
            connection.terminate()
            if is_in_transaction:
                self._raise_if_away(error)
            return bool(is_in_transaction)
        return True

    async def _check_note(self, error: Exception) -> None:
        """Raise `TransactionEndedError` if the transaction that the listener has ended was committed."""
        try:
            is_noted = await self._is_noted()
        except DatabaseAwayError as problem:
            raise DatabaseAwayError(str(problem), has_run=True) from error
        if is_noted:
            raise TransactionEndedError from error
        self._raise_if_away(error)

    def _raise_if_away(self, error: BaseException) -> None:
        if any(map(is_lost, causes(error))):
            raise away(self._database, error, has_run=True) from error
