"""Blocks of a transaction: `with session.begin()` and its kin."""

from collections.abc import Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from outbox.testing.around import Around
from outbox.testing.transaction import BlockKind, Scope

if TYPE_CHECKING:
    from outbox.testing.session import MemorySession, SyncMemorySession


class Block:
    """Ends with the session's commit or rollback; if it is a savepoint, with its own."""

    def __init__(self, session: "MemorySession", kind: BlockKind, *, force_rollback: bool = False) -> None:
        self._session = session
        self._kind = kind
        self._force_rollback = force_rollback
        self._scope: Scope | None = None
        self._inner = Around()

    async def start(self) -> "Block":
        self._scope = self._session.outbox_transaction.enter(self._kind)
        if not self._scope.outermost:
            self._inner = Around(await self._session.outbox_around.call("begin_nested"))
        return self

    async def commit(self) -> None:
        match self._scope:
            case Scope(outermost=True):
                await self._session.commit()
            case Scope():
                await self._inner.call("commit")
        self._leave()

    async def rollback(self) -> None:
        scope = self._leave()
        match scope:
            case Scope(outermost=True):
                await self._session.rollback()
            case Scope():
                self._session.outbox_transaction.rollback_to(scope)
                await self._inner.call("rollback")

    def __await__(self) -> Generator[Any, Any, "Block"]:
        return self.start().__await__()

    async def __aenter__(self) -> "Block":
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None or self._force_rollback:
            await self.rollback()
            return
        try:
            await self.commit()
        except BaseException:
            await self.rollback()
            raise

    def _leave(self) -> Scope | None:
        """Close it, if it is not closed already, and tell what it was."""
        scope, self._scope = self._scope, None
        if scope is not None:
            self._session.outbox_transaction.leave()
        return scope


class SyncBlock:
    """The same for code that does not await; it starts where it is made, as SQLAlchemy's does."""

    def __init__(
        self, session: "SyncMemorySession", kind: BlockKind, *, force_rollback: bool = False
    ) -> None:
        self._session = session
        self._force_rollback = force_rollback
        self._scope: Scope | None = session.outbox_transaction.enter(kind)
        savepoint = not self._scope.outermost
        self._inner = Around(session.outbox_around.call_sync("begin_nested") if savepoint else None)

    def commit(self) -> None:
        match self._scope:
            case Scope(outermost=True):
                self._session.commit()
            case Scope():
                self._inner.call_sync("commit")
        self._leave()

    def rollback(self) -> None:
        scope = self._leave()
        match scope:
            case Scope(outermost=True):
                self._session.rollback()
            case Scope():
                self._session.outbox_transaction.rollback_to(scope)
                self._inner.call_sync("rollback")

    def __enter__(self) -> "SyncBlock":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None or self._force_rollback:
            self.rollback()
            return
        try:
            self.commit()
        except BaseException:
            self.rollback()
            raise

    def _leave(self) -> Scope | None:
        """Close it, if it is not closed already, and tell what it was."""
        scope, self._scope = self._scope, None
        if scope is not None:
            self._session.outbox_transaction.leave()
        return scope
