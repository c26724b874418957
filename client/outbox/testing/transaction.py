"""What one session has changed and not committed."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from outbox.message import MessageRow
from outbox.testing.records import record_of
from outbox.testing.table import Cancel, Change, Emit, MemoryTable, TimerKey

BlockKind: TypeAlias = Literal["begin", "begin_nested", "transaction"]


@dataclass(frozen=True, slots=True)
class Scope:
    """A block of a transaction that is open."""

    outermost: bool
    """Whether its end ends the transaction; a savepoint's does not."""
    changes: int
    """How many changes there were before it."""


class Transaction:
    """The changes of one session since its last commit or rollback: only that session sees them."""

    def __init__(self, table: MemoryTable) -> None:
        self._table = table
        self._changes: list[Change] = []
        self._blocks = 0

    def emit(self, row: MessageRow, *, replace: bool = False) -> bool:
        """Insert a message, unless its timer is pending and not to be replaced."""
        change = Emit(record_of(row, self._table.time.now), replace)
        if not replace and self._has_timer(change.timer):
            return False
        self._changes.append(change)
        return True

    def cancel(self, timer: TimerKey) -> bool:
        """Delete a pending timer."""
        if not self._has_timer(timer):
            return False
        self._changes.append(Cancel(timer))
        return True

    def commit(self) -> None:
        self._table.apply(self._changes)
        self.rollback()

    def rollback(self) -> None:
        """Forget the changes, and the blocks: an explicit commit or rollback ends those around it as well."""
        self._changes.clear()
        self._blocks = 0

    def enter(self, kind: BlockKind) -> Scope:
        """Open a block: `begin` must be the outermost, `transaction` can be, `begin_nested` never is."""
        if kind == "begin" and (self._blocks or self._changes):
            raise RuntimeError(
                "session.begin(): a transaction is begun already, by an emit or by a block around this one; "
                "commit or roll back first, or use session.begin_nested() for a savepoint"
            )
        outermost = kind != "begin_nested" and not self._blocks
        self._blocks += 1
        return Scope(outermost, len(self._changes))

    def leave(self) -> None:
        self._blocks = max(self._blocks - 1, 0)

    def check_open(self) -> None:
        """Raise a RuntimeError where a listener has ended the block that it runs in."""
        if not self._blocks:
            raise RuntimeError(
                "the listener has ended its transaction itself, and what it did is not one with its message; "
                "leave commit and rollback to the worker"
            )

    def rollback_to(self, scope: Scope) -> None:
        del self._changes[scope.changes :]

    def _has_timer(self, timer: TimerKey) -> bool:
        if timer[1] is None:
            return False
        for change in reversed(self._changes):
            if change.timer == timer:
                return isinstance(change, Emit)
        return self._table.has_timer(timer)
