"""The messages of an outbox table: looked at, sent again, deleted."""

import json
from array import array
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg

from outbox.table import TableName
from outbox_cli.message_query import STATE_SQL, Query, State
from outbox_core.database import Database

_BATCH = 1000
_IDS_PAGE = 50_000
_MOST_ROWS = (1 << 63) - 1
_QUERY_SECONDS = 120.0

# A moment may be infinite, of which only the epoch can be subtracted.
_LINE = f"""
    id, {STATE_SQL} AS state, routing_key, attempts, last_error,
    (extract(epoch FROM pg_catalog.now()) - extract(epoch FROM created_at))::float8 AS age_seconds,
    (extract(epoch FROM send_after) - extract(epoch FROM pg_catalog.now()))::float8 AS due_seconds
"""
# Texts: moments of Postgres reach further than Python's. Those of JSON ignore the session's DateStyle.
_TIMES = ("created_at", "send_after", "sent_at", "parked_at")
_TIME = "pg_catalog.to_json({name} AT TIME ZONE 'UTC') #>> '{{}}'::text[] AS {name}"
_WHOLE = f"""
    {_LINE}, message_id::text, body, content_type, headers::text, tracking_ids::text, ordering_key, timer_id,
    extract(epoch FROM expiration)::float8 AS expiration_seconds,
    {", ".join(_TIME.format(name=name) for name in _TIMES)}
"""

# As after a failed attempt, an expiration counts from the new moment on. One that had ended before would have
# the relay drop what a person asks it to send, and an infinite one (Postgres 17) is none.
_RETRY = """
UPDATE {table}
SET parked_at = NULL, attempts = 0, send_after = pg_catalog.clock_timestamp(),
    expiration = CASE WHEN expiration > interval '0' AND pg_catalog.isfinite(expiration) THEN expiration END
WHERE {where} AND id = ANY ({ids}) AND parked_at IS NOT NULL AND sent_at IS NULL
"""

_DELETE = """
DELETE FROM {table} WHERE (tableoid, id) IN (
    SELECT tableoid, id FROM {table} WHERE {where} AND id = ANY ({ids}) FOR UPDATE SKIP LOCKED
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
    expiration_seconds: float | None
    """How long it may wait for a listener."""
    created_at: str
    """When it was emitted, as `moment` writes it."""
    send_after: str
    """When it is due."""
    sent_at: str | None
    """When the broker confirmed it."""
    parked_at: str | None
    """When the relay gave up."""


@dataclass(frozen=True, slots=True)
class Retried:
    """What came of a retry."""

    count: int = 0
    """How many messages are due again."""
    held_by_timers: tuple[int, ...] = ()
    """Rows left as they are: their timer has been set anew, and is pending under the same id."""

    def __add__(self, other: "Retried") -> "Retried":
        return Retried(self.count + other.count, self.held_by_timers + other.held_by_timers)


class Messages:
    """The messages of one table, through one connection."""

    def __init__(self, connection: Any, table: TableName) -> None:
        self._connection = connection
        self._table = table.sql

    async def pages(self, query: Query, limit: int) -> AsyncIterator[list[MessageLine]]:
        """The oldest `limit` of those meant, page by page; no transaction stays open between two pages."""
        where, arguments = query.where()
        sql = (
            f"SELECT {_LINE} FROM {self._table} "  # noqa: S608
            f"WHERE {where} AND id = ANY (${len(arguments) + 1}::bigint[]) ORDER BY id"
        )
        for batch in _batches(await self.ids(query, limit)):
            yield [_line(row) for row in await self._fetch(sql, *arguments, batch)]

    async def count(self, query: Query) -> int:
        """How many are meant."""
        where, arguments = query.where()
        [row] = await self._fetch(f"SELECT pg_catalog.count(*) FROM {self._table} WHERE {where}", *arguments)  # noqa: S608
        return int(row[0])

    async def one(self, number: int) -> StoredMessage | None:
        """The message in this row, or None."""
        rows = await self._fetch(f"SELECT {_WHOLE} FROM {self._table} WHERE id = $1", number)  # noqa: S608
        return _stored(rows[0]) if rows else None

    async def ids(self, query: Query, limit: int | None) -> "array[int]":
        """The rows of the oldest `limit` of those meant, as of one moment; eight bytes each."""
        where, arguments = query.where()
        most = _MOST_ROWS if limit is None else min(limit, _MOST_ROWS)
        found: array[int] = array("q")
        # One query for all of them: one a page would scan and sort the table again for each page. DECLARE,
        # since a cursor of asyncpg leaves a prepared statement behind in the session of a pooler.
        async with self._connection.transaction(isolation="read_committed", readonly=True):
            await self._connection.execute("SET LOCAL cursor_tuple_fraction = 1")
            await self._connection.execute(
                f"DECLARE found NO SCROLL CURSOR FOR "  # noqa: S608
                f"SELECT id FROM {self._table} WHERE {where} ORDER BY id LIMIT {most:d}",
                *arguments,
                timeout=_QUERY_SECONDS,
            )
            while page := await self._connection.fetch(
                f"FETCH {_IDS_PAGE} FROM found", timeout=_QUERY_SECONDS
            ):
                found.extend(row["id"] for row in page)
        return found

    async def retry(self, query: Query, ids: "array[int]") -> AsyncIterator[Retried]:
        """Have the relay send those of them again that still match; yields after each batch.

        The table's trigger wakes the relay up.
        """
        where, arguments = query.where()
        sql = _RETRY.format(table=self._table, where=where, ids=f"${len(arguments) + 1}::bigint[]")
        for batch in _batches(ids):
            yield await self._unpark(sql, arguments, batch)

    async def purge(self, query: Query, ids: "array[int]") -> AsyncIterator[int]:
        """Delete those of them that still match and that no relay is sending; yields after each batch."""
        where, arguments = query.where()
        sql = _DELETE.format(table=self._table, where=where, ids=f"${len(arguments) + 1}::bigint[]")
        for batch in _batches(ids):
            yield await self._execute(sql, *arguments, batch)

    async def _unpark(self, sql: str, arguments: list[Any], ids: list[int]) -> Retried:
        try:
            return Retried(await self._execute(sql, *arguments, ids))
        except asyncpg.UniqueViolationError:
            # A timer is pending once: one by one it is found which of them has been set anew.
            if len(ids) == 1:
                return Retried(0, tuple(ids))
        retried = Retried()
        for each in ids:
            retried += await self._unpark(sql, arguments, [each])
        return retried

    async def _fetch(self, sql: str, *arguments: Any) -> list[Any]:
        # In a transaction, without which a pooler might give each step another session.
        async with self._connection.transaction(isolation="read_committed"):
            rows: list[Any] = await self._connection.fetch(sql, *arguments, timeout=_QUERY_SECONDS)
            return rows

    async def _execute(self, sql: str, *arguments: Any) -> int:
        async with self._connection.transaction(isolation="read_committed"):
            status: str = await self._connection.execute(sql, *arguments, timeout=_QUERY_SECONDS)
        return int(status.rpartition(" ")[2])


def _batches(ids: "array[int]") -> Iterator[list[int]]:
    for first in range(0, len(ids), _BATCH):
        yield ids[first : first + _BATCH].tolist()


@asynccontextmanager
async def connected(database: Database) -> AsyncIterator[Any]:
    """A connection of our own to the database, closed with the block."""
    connection = await database.connect("outbox command")
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
                "expiration_seconds",
            )
        },
        created_at=moment(row["created_at"]),
        send_after=moment(row["send_after"]),
        sent_at=row["sent_at"] and moment(row["sent_at"]),
        parked_at=row["parked_at"] and moment(row["parked_at"]),
    )


def moment(text: str) -> str:
    """Postgres' text of a moment in UTC, with milliseconds: also of one that Python cannot represent."""
    if text.endswith("infinity"):
        return text
    text, bc, _ = text.partition(" BC")
    whole, _, fraction = text.partition(".")
    return f"{whole}.{fraction:0<3.3}Z{bc}"
