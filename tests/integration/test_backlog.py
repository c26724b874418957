"""How much waits in a live table, as the relay's metrics and the operator's status tell it."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest

from outbox import schema
from outbox.table import TableName
from outbox_core.backlog import Backlog, count_delayed, measure
from outbox_core.database import Database
from outbox_relay import Settings
from outbox_relay.metrics import Metrics
from outbox_relay.queries import Queries
from outbox_relay.upkeep import Upkeep


@pytest.fixture
async def database(postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(postgres_url)
    await schema.create(connection)
    yield connection
    await connection.close()


async def insert(database: asyncpg.Connection, count: int = 1, **columns: str) -> None:
    """Rows in which each of these columns is an SQL expression."""
    given = {"routing_key": "'a'", "body": "''", **columns}
    await database.execute(
        f"INSERT INTO outbox_table ({', '.join(given)}) SELECT {', '.join(given.values())} "
        f"FROM generate_series(1, {count})"
    )


async def measured(database: asyncpg.Connection) -> Backlog:
    return await measure(database, TableName.parse("outbox_table"))


async def test_the_backlog_is_exact_up_to_ten_thousand(database: asyncpg.Connection) -> None:
    assert await measured(database) == Backlog(due=0, oldest_seconds=0.0, parked=0)
    await insert(database, 9_990)
    await insert(database, 10, ordering_key="'k'")
    await insert(database, 5, send_after="now() + interval '1 hour'")
    await insert(database, 5, sent_at="now()")
    await insert(database, 7, parked_at="now()")
    found = await measured(database)
    assert (found.due, found.parked) == (10_000, 7)


async def test_the_backlog_is_an_estimate_beyond_ten_thousand(database: asyncpg.Connection) -> None:
    await insert(database, 30_000)
    # Without statistics all that is known is that there are more.
    assert (await measured(database)).due > 10_000
    await database.execute("ANALYZE outbox_table")
    assert 20_000 < (await measured(database)).due < 40_000


class Explaining(asyncpg.Connection):  # type: ignore[misc]  # asyncpg has no types
    """A connection that notes how many pages each query on the table reads."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.buffers: list[int] = []

    async def fetchrow(self, query: str, *arguments: Any, **options: Any) -> Any:
        await self._note(query, arguments)
        return await super().fetchrow(query, *arguments, **options)

    async def fetchval(self, query: str, *arguments: Any, **options: Any) -> Any:
        await self._note(query, arguments)
        return await super().fetchval(query, *arguments, **options)

    async def _note(self, query: str, arguments: tuple[Any, ...]) -> None:
        if '"outbox_table"' in query:
            explained = await super().fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {query}", *arguments)
            plan = json.loads(explained)[0]["Plan"]
            self.buffers.append(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


@pytest.fixture
async def explaining(database: asyncpg.Connection, postgres_url: str) -> AsyncIterator[Explaining]:
    connection = await asyncpg.connect(postgres_url, connection_class=Explaining)
    yield connection
    await connection.close()


@pytest.fixture(params=["analyzed", "not analyzed"])
async def held(
    explaining: Explaining, database: asyncpg.Connection, postgres_url: str, request: pytest.FixtureRequest
) -> AsyncIterator[Explaining]:
    """A table with many rows that were due an hour ago and are deleted, which a snapshot holds."""
    holder = await asyncpg.connect(postgres_url)
    async with holder.transaction(isolation="repeatable_read"):
        await holder.fetchval("SELECT count(*) FROM outbox_table")
        await insert(database, 200_000, send_after="now() - interval '1 hour'")
        await database.execute("DELETE FROM outbox_table")
        if request.param == "analyzed":
            await database.execute("ANALYZE outbox_table")
        yield explaining
    await holder.close()


async def test_dead_entries_that_a_snapshot_holds_are_walked_over_once(held: Explaining) -> None:
    table = TableName.parse("outbox_table")
    first = await measure(held, table)
    await insert(held, 5, send_after="now() - interval '1 second'")
    await insert(held, 2, parked_at="now()")
    second = await measure(held, table, first.seen_until)
    assert (first.due, second.due, second.parked) == (0, 5, 2)
    third = await measure(held, table, second.seen_until)
    assert third.due == 5
    whole, *others = held.buffers
    assert whole >= 2_000, "there was nothing to walk over"
    assert max(others) <= 100, held.buffers


async def test_upkeep_walks_over_dead_entries_once_in_many_measurements(
    held: Explaining, postgres_url: str
) -> None:
    upkeep = Upkeep(
        Settings(enable_metrics=False),
        Database(postgres_url),
        Queries(TableName.parse("outbox_table")),
        Metrics("outbox", exposed=False),
        lambda: 0,
    )
    for _ in range(41):
        await upkeep.run_once(held)
    assert [number for number, pages in enumerate(held.buffers) if pages >= 2_000] == [0, 20, 40]


async def test_what_is_due_later_is_counted_without_the_dead_entries_of_what_was_due(
    held: Explaining,
) -> None:
    await insert(held, 3, send_after="now() + interval '1 hour'")
    await insert(held, 4, send_after="now() + interval '1 hour'", ordering_key="'k'")
    assert await count_delayed(held, TableName.parse("outbox_table")) == 7
    assert max(held.buffers) <= 100, held.buffers


async def test_what_is_due_later_is_counted_up_to_ten_thousand(explaining: Explaining) -> None:
    await insert(explaining, 200_000, send_after="now() + interval '1 hour'")
    assert await count_delayed(explaining, TableName.parse("outbox_table")) == 10_000
    assert max(explaining.buffers) <= 11_000


async def test_a_row_older_than_what_was_seen_is_counted_if_its_transaction_was_short(
    database: asyncpg.Connection,
) -> None:
    table = TableName.parse("outbox_table")
    first = await measure(database, table)
    await insert(database, 1, send_after="now() - interval '50 seconds'")
    await insert(database, 1, send_after="now() - interval '2 hours'")
    assert (await measure(database, table, first.seen_until)).due == 1
    assert (await measure(database, table)).due == 2


async def test_the_backlogs_age_is_that_of_its_oldest_message(database: asyncpg.Connection) -> None:
    await insert(database)
    assert (await measured(database)).oldest_seconds < 3600
    await insert(database, send_after="now() - interval '2 hours'", ordering_key="'k'")
    assert (await measured(database)).oldest_seconds >= 7200
    await insert(database, send_after="'-infinity'")
    assert (await measured(database)).oldest_seconds == float("inf")


async def test_the_moment_of_the_oldest_message_does_not_move_while_it_waits(
    database: asyncpg.Connection,
) -> None:
    await insert(database, send_after="'2024-02-29T12:00:00Z'")
    await insert(database, send_after="'2024-03-01T12:00:00Z'", ordering_key="'k'")
    assert (await measured(database)).oldest_at == datetime(2024, 2, 29, 12, tzinfo=UTC)
    await insert(database, send_after="'-infinity'")
    assert (await measured(database)).oldest_at == datetime.min.replace(tzinfo=UTC)
