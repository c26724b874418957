"""How much is waiting in a table, cheaply: exact up to a limit, an estimate beyond."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from outbox.table import TableName

EXACT_UP_TO = 10_000

# A moment before year 1, which Python does not have, is as good as -infinity.
# Counts stop at $1: what is due beyond that is estimated from the statistics of the table, whose name is $2.
_MEASURE = """
WITH due AS (
    SELECT send_after FROM {table}
    WHERE ordering_key IS NULL AND sent_at IS NULL AND parked_at IS NULL AND send_after <= pg_catalog.now()
    ORDER BY send_after, id
    LIMIT $1::integer
), keyed AS (
    SELECT send_after FROM {table}
    WHERE ordering_key IS NOT NULL AND sent_at IS NULL AND parked_at IS NULL
        AND send_after <= pg_catalog.now()
    LIMIT $1::integer
), parked AS (
    SELECT FROM {table} WHERE parked_at IS NOT NULL LIMIT $1::integer
), oldest AS (
    SELECT least(
        (SELECT pg_catalog.min(send_after) FROM due), (SELECT pg_catalog.min(send_after) FROM keyed)
    ) AS send_after
), relations AS (
    -- Autovacuum keeps no statistics of a partitioned table as a whole.
    SELECT oid, reltuples FROM pg_catalog.pg_class
    WHERE relkind = 'r' AND oid IN (
        SELECT $2::text::regclass::oid
        UNION SELECT relid::oid FROM pg_catalog.pg_partition_tree($2::text::regclass)
    )
)
SELECT
    (SELECT pg_catalog.count(*) FROM due) + (SELECT pg_catalog.count(*) FROM keyed) AS due,
    CASE WHEN send_after < '0001-01-01Z' THEN '-infinity' ELSE send_after END AS oldest_at,
    greatest(0, extract(epoch FROM pg_catalog.clock_timestamp()) - extract(epoch FROM send_after))::float8
        AS oldest_seconds,
    (SELECT pg_catalog.count(*) FROM parked) AS parked,
    (SELECT pg_catalog.sum(greatest(reltuples, 0))::bigint FROM relations) AS rows_estimated,
    (SELECT pg_catalog.sum(pg_catalog.pg_stat_get_dead_tuples(oid))::bigint FROM relations) AS dead_rows
FROM oldest
"""


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits in the table."""

    due: int
    """Messages that are due."""
    oldest_seconds: float
    """How long the oldest of them has been due; 0 where none is."""
    parked: int
    """Parked messages, counted up to the limit."""
    oldest_at: datetime | None = None
    """Since when the oldest has been due, by the server's clock; None where none is."""
    dead_rows: int = 0
    """Dead rows that vacuum has not removed, as Postgres estimates them."""


async def measure(connection: Any, table: TableName) -> Backlog:
    """Count, on an asyncpg connection; behind a pooler it has to be in a transaction."""
    row = await connection.fetchrow(_MEASURE.replace("{table}", table.sql), EXACT_UP_TO + 1, table.sql)
    due: int = row["due"]
    if due > EXACT_UP_TO:
        # Autovacuum keeps the estimate of a busy table near; it counts sent and parked rows too.
        due = max(due, row["rows_estimated"] or 0)
    oldest_at: datetime | None = row["oldest_at"]
    return Backlog(
        due,
        row["oldest_seconds"] or 0.0,
        min(row["parked"], EXACT_UP_TO),
        # asyncpg gives every moment in UTC, but for -infinity, which has no zone.
        oldest_at and oldest_at.replace(tzinfo=UTC),
        row["dead_rows"] or 0,
    )
