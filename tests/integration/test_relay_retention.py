"""What is kept after a message was sent or parked, and for how long."""

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from outbox import schema
from outbox.table import TableName
from outbox_core.database import Database
from outbox_relay import Settings
from outbox_relay.metrics import Metrics
from outbox_relay.queries import Queries
from outbox_relay.retention import Retention
from outbox_relay.upkeep import Upkeep
from tests.integration.relaying import traffic_between

TABLE = TableName.parse("outbox_table")
QUERIES = Queries(TABLE)
HOUR = timedelta(hours=1)


@pytest.fixture
async def database(postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(postgres_url)
    await schema.create(connection)
    yield connection
    await connection.close()


async def insert(database: asyncpg.Connection, label: str, count: int = 1, **columns: str) -> None:
    """Rows with a label as routing key, each other column an SQL expression."""
    names = ", ".join(["routing_key", "body", *columns])
    values = ", ".join(["$1::text", "''", *columns.values()])
    await database.execute(
        f"INSERT INTO outbox_table ({names}) SELECT {values} FROM generate_series(1, $2::integer)",
        label,
        count,
    )


async def labels(database: asyncpg.Connection) -> list[str]:
    rows = await database.fetch("SELECT DISTINCT routing_key FROM outbox_table ORDER BY 1")
    return [row["routing_key"] for row in rows]


@pytest.fixture
async def mixed(database: asyncpg.Connection) -> asyncpg.Connection:
    """Of everything one that is two hours old, and one of now."""
    old = "now() - interval '2 hours'"
    await insert(database, "pending old", created_at=old, send_after=old)
    await insert(database, "pending new")
    await insert(database, "sent old", sent_at=old)
    await insert(database, "sent new", sent_at="now()")
    await insert(database, "parked old", parked_at=old)
    await insert(database, "parked new", parked_at="now()")
    return database


@pytest.mark.parametrize(
    ("retention", "gone"),
    [
        (Retention(sent=None, parked=None), set()),
        (Retention(sent=HOUR, parked=None), {"sent old"}),
        (Retention(sent=None, parked=HOUR), {"parked old"}),
        (Retention(sent=HOUR, parked=3 * HOUR), {"sent old"}),
        (Retention(sent=3 * HOUR, parked=HOUR), {"parked old"}),
        (
            Retention(sent=timedelta(0), parked=timedelta(0)),
            {"sent old", "sent new", "parked old", "parked new"},
        ),
    ],
)
async def test_sent_and_parked_messages_go_by_their_own_age_and_pending_ones_never(
    mixed: asyncpg.Connection, retention: Retention, gone: set[str]
) -> None:
    before = set(await labels(mixed))
    assert await retention.run_once(mixed, QUERIES) == len(gone)
    assert set(await labels(mixed)) == before - gone


class Counting:
    """A connection that notes how many messages each statement deletes, and how many pages it reads."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection
        self.deleted: list[int] = []
        self.buffers: list[int] = []

    def transaction(self, **options: Any) -> Any:
        return self._connection.transaction(**options)

    async def fetchrow(self, query: str, *arguments: Any) -> Any:
        self.buffers.append(await buffers(self._connection, query, *arguments))
        row = await self._connection.fetchrow(query, *arguments)
        self.deleted.append(row["count"])
        return row


async def buffers(connection: asyncpg.Connection, query: str, *arguments: Any) -> int:
    """How many pages the statement reads; what it does is rolled back."""
    transaction = connection.transaction()
    await transaction.start()
    explained = await connection.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {query}", *arguments)
    await transaction.rollback()
    plan = json.loads(explained)[0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


async def test_messages_go_in_batches_of_a_thousand(database: asyncpg.Connection) -> None:
    await insert(database, "sent", 2_500, sent_at="now() - interval '2 hours'")
    connection = Counting(database)
    assert await Retention(sent=HOUR, parked=None).run_once(connection, QUERIES) == 2_500
    assert connection.deleted == [1000, 1000, 500]
    assert await labels(database) == []


async def test_a_row_that_somebody_has_locked_is_left_for_the_next_time(
    mixed: asyncpg.Connection, postgres_url: str
) -> None:
    somebody_else = await asyncpg.connect(postgres_url)
    async with somebody_else.transaction():
        await somebody_else.execute("SELECT FROM outbox_table WHERE routing_key = 'sent old' FOR UPDATE")
        assert await Retention(sent=HOUR, parked=None).run_once(mixed, QUERIES) == 0
    await somebody_else.close()
    assert await Retention(sent=HOUR, parked=None).run_once(mixed, QUERIES) == 1


async def test_what_is_committed_a_moment_later_goes_the_next_time(database: asyncpg.Connection) -> None:
    retention = Retention(sent=timedelta(0), parked=timedelta(0))
    for seconds in (0, 30):
        for state in ("sent_at", "parked_at"):
            await insert(database, "a", 1, **{state: f"now() - interval '{seconds} seconds'"})
        assert await retention.run_once(database, QUERIES) == 2


async def test_a_row_that_was_locked_goes_within_an_hour(
    mixed: asyncpg.Connection, postgres_url: str
) -> None:
    retention = Retention(sent=HOUR, parked=None)
    somebody_else = await asyncpg.connect(postgres_url)
    await insert(mixed, "sent later", sent_at="now() - interval '90 minutes'")
    async with somebody_else.transaction():
        await somebody_else.execute("SELECT FROM outbox_table WHERE routing_key = 'sent old' FOR UPDATE")
        assert await retention.run_once(mixed, QUERIES) == 1
    await somebody_else.close()
    # Every half a minute.
    assert [await retention.run_once(mixed, QUERIES) for _ in range(120)] == [*[0] * 119, 1]


@pytest.mark.parametrize("state", ["sent", "parked"])
async def test_dead_entries_that_a_snapshot_holds_are_walked_over_once(
    database: asyncpg.Connection, postgres_url: str, state: str
) -> None:
    retention = Retention(sent=HOUR, parked=HOUR)
    await insert(database, "dead", 200_000, **{f"{state}_at": "now() - interval '1 day'"})
    holder = await asyncpg.connect(postgres_url)
    async with holder.transaction(isolation="repeatable_read"):
        await holder.fetchval("SELECT count(*) FROM outbox_table WHERE false")
        await database.execute("DELETE FROM outbox_table")
        connection = Counting(database)
        for hours in (5, 4, 3):
            await insert(database, "old", 1_500, **{f"{state}_at": f"now() - interval '{hours} hours'"})
            assert await retention.run_once(connection, QUERIES) == 1_500
    await holder.close()
    counts = [
        (deleted, pages)
        for deleted, pages in zip(connection.deleted, connection.buffers, strict=True)
        if deleted
    ]
    assert [deleted for deleted, _ in counts] == [1000, 500] * 3
    first, *others = (pages for _, pages in counts)
    # Of each row the row itself and the key's index, with a lock and without; and the dead entries once.
    assert max(others) <= 7 * 1_000, counts
    assert first >= max(others) + 2_000, "there was nothing to walk over"


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
async def test_a_purge_walks_the_index_and_not_the_table(database: asyncpg.Connection, mode: str) -> None:
    await insert(database, "pending", 20_000)
    await insert(database, "sent", 1_000, sent_at="now() - interval '2 hours'")
    await insert(database, "parked", 1_000, parked_at="now() - interval '2 hours'")
    await database.execute("ANALYZE outbox_table")
    await database.execute(f"SET plan_cache_mode = {mode}")
    for query, index in (
        (QUERIES.purge_sent, "outbox_table_sent_idx"),
        (QUERIES.purge_parked, "outbox_table_parked_idx"),
    ):
        plan = await database.fetch(f"EXPLAIN {query}", 3600.0, 100, 0.0)
        text = "\n".join(row[0] for row in plan)
        assert index in text, text
        assert "outbox_table_pkey" in text, text
        assert "Seq Scan" not in text, text


def upkeep(database_url: str, **settings: Any) -> Upkeep:
    chosen = Settings(enable_metrics=False, **settings)
    return Upkeep(chosen, Database(database_url), QUERIES, Metrics("outbox", exposed=False), lambda: 0)


async def test_upkeep_applies_what_the_settings_say(mixed: asyncpg.Connection, postgres_url: str) -> None:
    await upkeep(postgres_url, clean_up_after=HOUR, parked_retention=HOUR).run_once(mixed)
    assert await labels(mixed) == ["parked new", "pending new", "pending old", "sent new"]


@pytest.mark.parametrize("choice", ["immediately", "never"])
async def test_upkeep_deletes_nothing_unless_told_to(
    mixed: asyncpg.Connection, postgres_url: str, choice: str
) -> None:
    await upkeep(postgres_url, clean_up_after=choice).run_once(mixed)
    assert len(await labels(mixed)) == 6


async def test_a_running_relay_does_its_upkeep(postgres_url: str, rabbitmq_url: str) -> None:
    async with traffic_between(postgres_url, rabbitmq_url) as traffic:
        inbox = await traffic.inbox("#")
        old = await traffic.insert(sent_at="now() - interval '2 hours'")
        new = await traffic.insert(sent_at="now()")
        await traffic.relaying(clean_up_after=HOUR)
        await traffic.until_ids([new])
        assert old not in inbox.ids
