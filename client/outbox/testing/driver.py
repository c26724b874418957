"""What the statements of an emitter do to a table in memory."""

from collections.abc import Sequence
from typing import Any, Literal

from outbox.drivers.driver import Row
from outbox.drivers.statement import Statement
from outbox.message import PLAIN_FIELDS, MessageRow
from outbox.testing.transaction import Transaction


class SyncMemoryDriver:
    """For `SyncMemorySession`; an emit there always belongs to a transaction."""

    is_async: Literal[False] = False

    def execute(self, session: Any, statement: Statement, args: Sequence[Any]) -> int:
        return _execute(session.outbox_transaction, statement, args)

    def fetch(self, session: Any, statement: Statement, args: Sequence[Any]) -> list[Row]:
        return _fetch(session.outbox_transaction, statement, args)

    def autocommits(self, session: Any) -> bool:  # noqa: ARG002 — what other drivers need
        return False


class AsyncMemoryDriver:
    """For `MemorySession`; an emit there always belongs to a transaction."""

    is_async: Literal[True] = True

    async def execute(self, session: Any, statement: Statement, args: Sequence[Any]) -> int:
        return _execute(session.outbox_transaction, statement, args)

    async def fetch(self, session: Any, statement: Statement, args: Sequence[Any]) -> list[Row]:
        return _fetch(session.outbox_transaction, statement, args)

    def autocommits(self, session: Any) -> bool:  # noqa: ARG002 — what other drivers need
        return False


def _execute(transaction: Transaction, statement: Statement, args: Sequence[Any]) -> int:
    match statement.name:
        case "one":
            return int(transaction.emit(MessageRow(*args)))
        case "many":
            return len(_inserted(transaction, MessageRow._fields, args))
        case "many_plain":
            return len(_inserted(transaction, PLAIN_FIELDS, args))
        case "creation" | "key_lock":
            return 0
        case _:
            raise _unknown(statement)


def _fetch(transaction: Transaction, statement: Statement, args: Sequence[Any]) -> list[Row]:
    match statement.name:
        case "timer":
            return [(True,)] if transaction.emit(MessageRow(*args)) else []
        case "replacement":
            return [(True,)] if transaction.emit(MessageRow(*args), replace=True) else []
        case "cancellation":
            routing_key, timer_id = args
            return [(True,)] if transaction.cancel((routing_key, timer_id)) else []
        case "many_timers":
            return _inserted(transaction, MessageRow._fields, args)
        case "probe":
            return [("settled",)]
        case _:
            raise _unknown(statement)


def _inserted(transaction: Transaction, fields: Sequence[str], arrays: Sequence[Any]) -> list[Row]:
    """The ids of those inserted; `arrays` has a list for each of the fields, and the others are NULL."""
    null: dict[str, Any] = dict.fromkeys(MessageRow._fields)
    given = (dict(zip(fields, values, strict=True)) for values in zip(*arrays, strict=True))
    rows = [MessageRow(**(null | values)) for values in given]
    return [(row.message_id,) for row in rows if transaction.emit(row)]


def _unknown(statement: Statement) -> NotImplementedError:
    return NotImplementedError(
        f"the statement {statement.name!r} has no meaning in outbox.testing, which carries out what Emitter "
        "and SyncEmitter send; run what sends it against a Postgres"
    )
