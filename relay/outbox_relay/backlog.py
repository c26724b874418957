"""How much is waiting in the table, cheaply: exact up to a limit, an estimate beyond."""

from dataclasses import dataclass
from typing import Any

from outbox.table import TableName
from outbox_relay.queries import Queries

EXACT_UP_TO = 10_000


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits in the table."""

    due: int
    """Messages that are due."""
    oldest_seconds: float
    """How long the oldest of them has been due; 0 where none is."""
    parked: int
    """Parked messages, counted up to the limit."""


async def measure(connection: Any, queries: Queries, table: TableName) -> Backlog:
    row = await connection.fetchrow(queries.backlog, EXACT_UP_TO + 1, table.sql)
    due: int = row["due"]
    if due > EXACT_UP_TO:
        # Autovacuum keeps the estimate of a busy table near; it counts sent and parked rows too.
        due = max(due, row["rows_estimated"])
    return Backlog(due, row["oldest_seconds"] or 0.0, min(row["parked"], EXACT_UP_TO))
