"""How much is waiting in a table, cheaply: exact up to a limit, an estimate beyond."""

import math
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from outbox.table import TableName

EXACT_UP_TO = 10_000

# A moment before year 1, which Python does not have, is as good as -infinity.
# Counts stop at $1: what is due beyond that is estimated from the statistics of the table, whose name is $2.
# Before $3, in seconds since 1970, nothing is looked for, but for a minute in which transactions may commit:
# there may be millions of dead entries that a snapshot holds.
_MEASURE = """
WITH due AS (
    SELECT send_after FROM {table}
    WHERE ordering_key IS NULL AND sent_at IS NULL AND parked_at IS NULL AND send_after <= pg_catalog.now()
        AND send_after >= pg_catalog.to_timestamp($3::float8) - interval '1 minute'
    ORDER BY send_after, id
    LIMIT $1::integer
), keyed AS (
    SELECT send_after FROM {table}
    WHERE ordering_key IS NOT NULL AND sent_at IS NULL AND parked_at IS NULL
        AND send_after <= pg_catalog.now()
    LIMIT $1::integer
), parked AS (
    -- In the order of an index, since Postgres would read the table where it has no statistics.
    SELECT FROM {table} WHERE parked_at IS NOT NULL ORDER BY parked_at LIMIT $1::integer
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
    extract(epoch FROM coalesce((SELECT pg_catalog.min(send_after) FROM due), pg_catalog.now()))::float8
        AS seen_until,
    (SELECT pg_catalog.count(*) FROM parked) AS parked,
    (SELECT pg_catalog.sum(greatest(reltuples, 0))::bigint FROM relations) AS rows_estimated,
    (SELECT pg_catalog.sum(pg_catalog.pg_stat_get_dead_tuples(oid))::bigint FROM relations) AS dead_rows
FROM oldest
"""

_DELAYED = """
SELECT (
    SELECT pg_catalog.count(*) FROM (
        SELECT FROM {table}
        WHERE ordering_key IS NULL AND sent_at IS NULL AND parked_at IS NULL AND send_after > pg_catalog.now()
        ORDER BY send_after, id
        LIMIT $1::integer
    ) AS keyless
) + (
    SELECT pg_catalog.count(*) FROM (
        SELECT FROM {table}
        WHERE ordering_key IS NOT NULL AND sent_at IS NULL AND parked_at IS NULL
            AND send_after > pg_catalog.now()
        LIMIT $1::integer
    ) AS keyed
)
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
    seen_until: float = field(default=-math.inf, compare=False)
    """Before this moment nothing without an ordering key is due, in seconds since 1970."""


async def measure(connection: Any, table: TableName, since: float = -math.inf) -> Backlog:
    """Count, on an asyncpg connection; behind a pooler it has to be in a transaction.

    With the `seen_until` of an earlier measurement it does not walk over the dead entries before that, and
    may miss a row of a transaction that was open for more than a minute.
    """
    row = await connection.fetchrow(_MEASURE.replace("{table}", table.sql), EXACT_UP_TO + 1, table.sql, since)
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
        row["seen_until"],
    )


async def count_delayed(connection: Any, table: TableName) -> int:
    """Count messages that are due later, up to the limit; otherwise as `measure`."""
    count: int = await connection.fetchval(_DELAYED.replace("{table}", table.sql), EXACT_UP_TO)
    return min(count, EXACT_UP_TO)
