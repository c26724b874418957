"""One look at a database, or at the queues of a broker."""

import asyncio
from dataclasses import dataclass

from outbox.table import TableName
from outbox.topology import dead_letter_queue
from outbox_cli.failures import CommandError
from outbox_cli.messages import connected
from outbox_cli.status.picture import QueueState, TableState, TierState
from outbox_core import backlog
from outbox_core.broker import Broker
from outbox_core.broker_errors import QueueMissingError
from outbox_core.database import Database
from outbox_core.horizon import oldest_holder
from outbox_core.horizon_holder import MANY_DEAD_ROWS

_LOOK_SECONDS = 30.0
"""How long a look may take altogether."""


@dataclass(frozen=True, slots=True)
class QueueNames:
    """Queues of a broker."""

    listeners: tuple[str, ...]
    """Those of listeners."""
    tiers: tuple[str, ...] = ()
    """Those of delay tiers."""


async def look_at_table(database: Database, table: TableName) -> TableState:
    """Count what waits in a table."""
    async with asyncio.timeout(_LOOK_SECONDS), connected(database) as connection:
        # Behind a pooler each transaction may be in another session.
        async with connection.transaction(isolation="read_committed", readonly=True):
            measured = await backlog.measure(connection, table)
            delayed = await backlog.count_delayed(connection, table)
        holder = await oldest_holder(connection) if measured.dead_rows >= MANY_DEAD_ROWS else None
    oldest = measured.oldest_seconds if measured.oldest_at else None
    return TableState(
        table.sql, measured.due, delayed, oldest, measured.parked, measured.dead_rows, horizon_holder=holder
    )


async def look_at_queues(url: str, names: QueueNames) -> tuple[list[QueueState], list[TierState]]:
    """Count what waits in queues, and who consumes them, as it is now: no statistics are asked for."""
    try:
        broker = Broker(url, name="outbox command")
    except ValueError as error:
        raise CommandError(str(error)) from None
    async with asyncio.timeout(_LOOK_SECONDS), broker:
        queues = [await _queue(broker, name) for name in names.listeners]
        tiers = [(name, await _counts(broker, name)) for name in names.tiers]
    return queues, [TierState(name, counts[0]) for name, counts in tiers if counts]


async def _queue(broker: Broker, name: str) -> QueueState:
    letters = await _counts(broker, dead_letter_queue(name))
    dead_letters = letters[0] if letters else None
    if counts := await _counts(broker, name):
        return QueueState(name, counts[0], counts[1], dead_letters)
    return QueueState(name, None, None, dead_letters, is_missing=True)


async def _counts(broker: Broker, name: str) -> tuple[int, int] | None:
    try:
        return await broker.counts(name)
    except QueueMissingError:
        return None
