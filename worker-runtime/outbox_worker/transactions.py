"""The doors through which an exactly-once listener runs: one transaction with the note of its message."""

from collections.abc import Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import asyncpg

from outbox.listener import Listener
from outbox_core.database import Database, DatabaseError
from outbox_worker.inbox import DEFAULT_TABLE, Inbox

NOTE_SECONDS = 1.0
"""How long a note waits for somebody else who is handling the same message. It is tried anew then: those who
wait must not keep the connections from those who could work."""

OPEN_SECONDS = 60.0
"""How long any other statement of ours may take."""

END_SECONDS = 30.0
"""How long COMMIT and ROLLBACK may take."""

ERRORS = (
    DatabaseError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
)
"""What connecting and a statement may raise. OSError includes every timeout."""


class DatabaseAwayError(Exception):
    """The database cannot be used for now, which is nobody's fault: try the same message again later.

    What became of a COMMIT whose answer was lost is not known; the inbox tells at the next try.
    """

    def __init__(self, message: str, *, has_run: bool = False) -> None:
        super().__init__(message)
        self.has_run = has_run
        """Whether the listener had begun. One that loses its connection each time should not be tried for
        ever."""


class MessageBusyError(DatabaseAwayError):
    """Somebody else has begun to handle the message, and has neither committed nor rolled back."""

    def __init__(self, queue: str, message_id: str) -> None:
        super().__init__(f"message {message_id} of queue {queue} is being handled by somebody else")


@dataclass(frozen=True, slots=True)
class Entry:
    """A transaction that is open, with the note of a message in it."""

    is_duplicate: bool
    """Whether the message was handled before: there is nothing to do."""
    connection: Any = None
    """The asyncpg connection, where the listener asks for it."""
    session: Any = None
    """The SQLAlchemy AsyncSession, where the listener asks for it."""


class Transactions(Protocol):
    """Transactions on one database, and the inbox in it."""

    def begin(
        self, queue: str, message_id: str, *, session: bool = False
    ) -> AbstractAsyncContextManager[Entry]:
        """Open a transaction and note the message in it, unless it is noted already.

        The end of the block commits, an exception rolls back. `session` is for a listener that asks for one.
        Raises `TransactionEndedError` if the listener has ended the transaction: its note may be committed,
        and has to be removed by `forget`.
        A message that somebody else is handling at this moment is waited for.
        """

    async def was_handled(self, queue: str, message_id: str) -> bool:
        """Whether the message is noted."""

    async def note_handled(self, queue: str, message_id: str) -> None:
        """Note the message, in a transaction of its own."""

    async def forget(self, queue: str, message_id: str) -> None:
        """Remove the note of a message, in a transaction of its own."""

    def problems(self, listeners: Iterable[Listener[..., Any]]) -> list[str]:
        """What these listeners ask for and cannot be given here, a line each."""

    async def open(self) -> None:
        """Connect for the first time: a `DatabaseError` where a person has to do something, or is away."""

    async def create(self) -> None:
        """Make the inbox where it is missing."""

    async def check(self) -> list[str]:
        """What is wrong with the inbox, a line each."""

    async def purge(self, older_than_seconds: float, limit: int) -> int:
        """Forget at most `limit` messages that were handled longer ago than this, and tell how many."""

    async def aclose(self) -> None:
        """Close the connections, except those of an engine that was given."""


def transactions_of(
    db_engine: Any = None,
    db_engine_url: str | None = None,
    table: str = DEFAULT_TABLE,
    size: int = 10,
    longest_seconds: float | None = None,
) -> Transactions:
    """The transactions of an SQLAlchemy AsyncEngine, or of a URL with at most `size` connections.

    Where listeners ask for connections and others for sessions, a URL has that many connections for each. A
    transaction in which nothing happens for `longest_seconds` is ended by the server: that of a process which
    is frozen would keep its message from everybody. The connections of an engine are its owner's to limit.
    """
    inbox = Inbox(table)
    match db_engine, db_engine_url:
        case None, str():
            from outbox_worker.asyncpg_transactions import AsyncpgTransactions

            return AsyncpgTransactions(Database(db_engine_url), inbox, size, longest_seconds)
        case _, None if db_engine is not None:
            _check_engine(db_engine)
            from outbox_worker.sqlalchemy_transactions import SqlAlchemyTransactions

            return SqlAlchemyTransactions(db_engine, Database(db_engine), inbox)
        case _:
            raise TypeError("give exactly one of db_engine and db_engine_url")


def away(database: Database, error: BaseException, *, has_run: bool = False) -> DatabaseAwayError:
    """What to raise from `error`."""
    # The errors of connecting say where already.
    text = str(error) if isinstance(error, DatabaseError) else f"{database.where}: {_reason(error)}"
    return DatabaseAwayError(text, has_run=has_run)


def causes(error: BaseException) -> Iterator[BaseException]:
    """The error, what it was raised from, and so on: a listener may have put it into one of its own."""
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        yield found
        seen.add(id(found))
        found = found.__cause__ or found.__context__


def _reason(error: BaseException) -> str:
    while error.__cause__ is not None:  # SQLAlchemy's errors are about the driver's
        error = error.__cause__
    lines = str(error).splitlines()
    return lines[0] if lines else "no answer in time"


def _check_engine(engine: Any) -> None:
    if not hasattr(engine, "sync_engine"):
        kind = type(engine)
        raise TypeError(
            f"db_engine is a {kind.__module__}.{kind.__qualname__}; "
            "give an AsyncEngine, from create_async_engine(), or db_engine_url"
        )
    if engine.dialect.name != "postgresql":
        raise TypeError(f"the inbox lives in Postgres, and db_engine is on {engine.dialect.name}")
