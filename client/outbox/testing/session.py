"""The sessions that a test hands to the code under test in place of the database's."""

from types import TracebackType
from typing import Any, ClassVar

from outbox.drivers import AsyncDriver, SyncDriver
from outbox.testing.around import Around
from outbox.testing.block import Block, SyncBlock
from outbox.testing.driver import AsyncMemoryDriver, SyncMemoryDriver
from outbox.testing.transaction import Transaction


class _Session:
    """What both sessions have. Two names of their own, chosen not to hide one of the object around."""

    def __init__(self, transaction: Transaction, around: Any = None) -> None:
        self.outbox_transaction = transaction
        self.outbox_around = Around(around)

    def __getattr__(self, name: str) -> Any:
        # By way of __dict__: while a copy is made there is no attribute yet, and this would never end.
        around = self.__dict__.get("outbox_around")
        if around is None or around.target is None:
            raise AttributeError(
                f"{type(self).__name__} has no {name!r}: it only knows emits and transactions; "
                "give it the object that the code under test needs, as in session(around=mock)"
            )
        return getattr(around.target, name)


class MemorySession(_Session):
    """A session for `Emitter`. Leaving `async with` without a commit rolls back, as SQLAlchemy's does.

    Around another object, `commit`, `rollback` and `close` reach that one too, a savepoint is one of its
    `begin_nested`, and whatever else is asked of the session is that object's. Where its `commit` fails,
    nothing is recorded.
    """

    __outbox_driver__: ClassVar[AsyncDriver] = AsyncMemoryDriver()

    async def __aenter__(self) -> "MemorySession":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def begin(self) -> Block:
        """A block that commits at its end, or rolls back on an exception."""
        return Block(self, "begin")

    def begin_nested(self) -> Block:
        """A savepoint: on an exception its emits are dropped, and otherwise they wait for the commit."""
        return Block(self, "begin_nested")

    def transaction(
        self,
        savepoint_name: str | None = None,  # noqa: ARG002 — psycopg's, of no use here
        force_rollback: bool = False,
        **_options: object,
    ) -> Block:
        """As asyncpg's and psycopg's: `begin`, or `begin_nested` within another block.

        asyncpg's `isolation`, `readonly` and `deferrable` are accepted and change nothing.
        """
        return Block(self, "transaction", force_rollback=force_rollback)

    async def commit(self) -> None:
        """Record what was emitted."""
        await self.outbox_around.call("commit")
        self.outbox_transaction.commit()

    async def rollback(self) -> None:
        """Drop what was emitted."""
        self.outbox_transaction.rollback()
        await self.outbox_around.call("rollback")

    async def close(self) -> None:
        """Drop what was emitted and not committed."""
        self.outbox_transaction.rollback()
        await self.outbox_around.call("close")


class SyncMemorySession(_Session):
    """The same for `SyncEmitter`, and for code that does not await."""

    __outbox_driver__: ClassVar[SyncDriver] = SyncMemoryDriver()

    def __enter__(self) -> "SyncMemorySession":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def begin(self, nested: bool = False) -> SyncBlock:
        """A block that commits at its end, or rolls back on an exception; `nested` is SQLAlchemy's."""
        return SyncBlock(self, "begin_nested" if nested else "begin")

    def begin_nested(self) -> SyncBlock:
        """A savepoint: on an exception its emits are dropped, and otherwise they wait for the commit."""
        return SyncBlock(self, "begin_nested")

    def transaction(
        self,
        savepoint_name: str | None = None,  # noqa: ARG002 — psycopg's, of no use here
        force_rollback: bool = False,
    ) -> SyncBlock:
        """As psycopg's: `begin`, or `begin_nested` within another block."""
        return SyncBlock(self, "transaction", force_rollback=force_rollback)

    def commit(self) -> None:
        """Record what was emitted."""
        self.outbox_around.call_sync("commit")
        self.outbox_transaction.commit()

    def rollback(self) -> None:
        """Drop what was emitted."""
        self.outbox_transaction.rollback()
        self.outbox_around.call_sync("rollback")

    def close(self) -> None:
        """Drop what was emitted and not committed."""
        self.outbox_transaction.rollback()
        self.outbox_around.call_sync("close")
