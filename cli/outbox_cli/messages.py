"""The messages of an outbox table: looked at, sent again, deleted."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import asyncpg

from outbox.table import TableName
from outbox_cli.message_query import STATE_SQL, Query, State
from outbox_core.database import Database

_BATCH = 1000
_QUERY_SECONDS = 120.0

# A moment may be infinite, of which only the epoch can be subtracted.
_LINE = f"""
    id, {STATE_SQL} AS state, routing_key, attempts, last_error,
    (extract(epoch FROM now()) - extract(epoch FROM created_at))::float8 AS age_seconds,
    (extract(epoch FROM send_after) - extract(epoch FROM now()))::float8 AS due_seconds
"""
_WHOLE = f"""
    {_LINE}, message_id::text, body, content_type, headers::text, tracking_ids::text, ordering_key, timer_id,
    expiration, created_at, send_after, sent_at, parked_at
"""

# As after a failed attempt, an expiration counts from the new moment on. One that had ended before would have
# the relay drop what a person asks it to send.
_RETRY = """
UPDATE {table}
SET parked_at = NULL, attempts = 0, send_after = clock_timestamp(),
    expiration = CASE WHEN expiration > interval '0' THEN expiration END
WHERE id = ANY ($1::bigint[]) AND parked_at IS NOT NULL AND sent_at IS NULL
"""

_DELETE = """
DELETE FROM {table} WHERE id IN (
    SELECT id FROM {table} WHERE {where} ORDER BY id LIMIT {limit} FOR UPDATE SKIP LOCKED
)
"""


@dataclass(frozen=True, slots=True)
class MessageLine:
    """What a list says of a message."""

    id: int
    """The row."""
    state: State
    """What it waits for."""
    routing_key: str
    """Where it goes."""
    attempts: int
    """How often sending it failed."""
    last_error: str | None
    """Why, the last time."""
    age_seconds: float
    """How long ago it was emitted."""
    due_seconds: float
    """In how many seconds it is due; negative where it is."""


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """All that the table holds of a message."""

    line: MessageLine
    """What a list says of it."""
    message_id: str
    """Its id on the wire."""
    body: bytes
    """As it is put on the wire."""
    content_type: str | None
    """How to read the body; None is JSON."""
    headers: Any
    """The user's own."""
    tracking_ids: Any
    """The chain of emits that led to it."""
    ordering_key: str | None
    """With whom it keeps an order."""
    timer_id: str | None
    """The timer that it is."""
    expiration: timedelta | None
    """How long it may wait for a listener."""
    created_at: datetime
    """When it was emitted."""
    send_after: datetime
    """When it is due."""
    sent_at: datetime | None
    """When the broker confirmed it."""
    parked_at: datetime | None
    """When the relay gave up."""


@dataclass(frozen=True, slots=True)
class Retried:
    """What came of a retry."""

    count: int
    """How many messages are due again."""
    held_by_timers: tuple[int, ...] = ()
    """Rows left as they are: their timer has been set anew, and is pending under the same id."""


class Messages:
    """The messages of one table, through one connection."""

    def __init__(self, connection: Any, table: TableName) -> None:
        self._connection = connection
        self._table = table.sql

    async def some(self, query: Query, limit: int) -> list[MessageLine]:
        """The oldest `limit` of those meant."""
        where, arguments = query.where()
        sql = f"SELECT {_LINE} FROM {self._table} WHERE {where} ORDER BY id LIMIT {limit:d}"  # noqa: S608
        return [_line(row) for row in await self._fetch(sql, *arguments)]

    async def count(self, query: Query) -> int:
        """How many are meant."""
        where, arguments = query.where()
        [row] = await self._fetch(f"SELECT count(*) FROM {self._table} WHERE {where}", *arguments)  # noqa: S608
        return int(row[0])

    async def one(self, number: int) -> StoredMessage | None:
        """The message in this row, or None."""
        rows = await self._fetch(f"SELECT {_WHOLE} FROM {self._table} WHERE id = $1", number)  # noqa: S608
        return _stored(rows[0]) if rows else None

    async def retry(self, query: Query, limit: int | None, on_progress: Callable[[int], None]) -> Retried:
        """Have the relay send parked messages again; the table's trigger wakes it up."""
        retried, held, last = 0, list[int](), 0
        while limit is None or retried < limit:
            most = _BATCH if limit is None else min(_BATCH, limit - retried)
            ids = await self._parked_after(query, last, most)
            if not ids:
                break
            last = ids[-1]
            count, refused = await self._unpark(ids)
            retried, held = retried + count, held + refused
            on_progress(retried)
        return Retried(retried, tuple(held))

    async def purge(self, query: Query, limit: int | None, on_progress: Callable[[int], None]) -> int:
        """Delete those meant, but for what a relay is sending at this moment; tells how many."""
        where, arguments = query.where()
        deleted = 0
        while limit is None or deleted < limit:
            most = _BATCH if limit is None else min(_BATCH, limit - deleted)
            sql = _DELETE.format(table=self._table, where=where, limit=most)
            count = await self._execute(sql, *arguments)
            if not count:
                break
            deleted += count
            on_progress(deleted)
        return deleted

    async def _parked_after(self, query: Query, last: int, most: int) -> list[int]:
        where, arguments = query.where()
        arguments.append(last)
        sql = (
            f"SELECT id FROM {self._table} WHERE {where} AND id > ${len(arguments)}::bigint "  # noqa: S608
            f"ORDER BY id LIMIT {most:d}"
        )
        return [row["id"] for row in await self._fetch(sql, *arguments)]

    async def _unpark(self, ids: list[int]) -> tuple[int, list[int]]:
        """How many are pending again, and which could not be."""
        sql = _RETRY.format(table=self._table)
        try:
            return await self._execute(sql, ids), []
        except asyncpg.UniqueViolationError:
            # A timer is pending once: one by one it is found which of them has been set anew.
            if len(ids) == 1:
                return 0, ids
        results = [await self._unpark([each]) for each in ids]
        return sum(count for count, _ in results), [each for _, held in results for each in held]

    async def _fetch(self, sql: str, *arguments: Any) -> list[Any]:
        # In a transaction, without which a pooler might give each step another session.
        async with self._connection.transaction():
            rows: list[Any] = await self._connection.fetch(sql, *arguments, timeout=_QUERY_SECONDS)
            return rows

    async def _execute(self, sql: str, *arguments: Any) -> int:
        async with self._connection.transaction():
            status: str = await self._connection.execute(sql, *arguments, timeout=_QUERY_SECONDS)
        return int(status.rpartition(" ")[2])


@asynccontextmanager
async def connected(database_url: str) -> AsyncIterator[Any]:
    """A connection of our own to the database, closed with the block."""
    connection = await Database(database_url).connect("outbox command")
    try:
        yield connection
    finally:
        await connection.close(timeout=5)


def _line(row: Any) -> MessageLine:
    return MessageLine(
        row["id"],
        State(row["state"]),
        row["routing_key"],
        row["attempts"],
        row["last_error"],
        row["age_seconds"],
        row["due_seconds"],
    )


def _stored(row: Any) -> StoredMessage:
    return StoredMessage(
        line=_line(row),
        headers=None if row["headers"] is None else json.loads(row["headers"]),
        tracking_ids=json.loads(row["tracking_ids"]),
        **{
            name: row[name]
            for name in (
                "message_id",
                "body",
                "content_type",
                "ordering_key",
                "timer_id",
                "expiration",
                "created_at",
                "send_after",
                "sent_at",
                "parked_at",
            )
        },
    )
