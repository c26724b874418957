"""What a claim reads when the table has many rows that it cannot take: pages, not time."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from outbox import schema
from outbox_relay.claims import Claims
from outbox_relay.relay import SESSION
from tests.integration.claiming import (
    QUERIES,
    Plan,
    claimed,
    claims_until,
    explain_prepared,
    explained,
    fill,
    keys_of_claim,
)

MODES = ("force_custom_plan", "force_generic_plan")
MOST_PAGES = 300
"""For a claim of one row of each kind, from a table in which many wait."""


@pytest.fixture
async def database(postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(postgres_url)
    await schema.create(connection)
    # Vacuum at a chance moment would make dead rows disappear.
    await connection.execute("ALTER TABLE outbox_table SET (autovacuum_enabled = false)")
    yield connection
    await connection.close()


@asynccontextmanager
async def held_snapshot(url: str) -> AsyncIterator[None]:
    """A session that reads for a long time."""
    holder = await asyncpg.connect(url)
    try:
        await holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await holder.fetch("SELECT FROM outbox_table LIMIT 1")
        yield
    finally:
        await holder.close()


async def assert_claims_little(database: asyncpg.Connection, claims: Claims) -> None:
    """A message without a key and one with a key are claimed, and few pages are read."""
    await database.execute("INSERT INTO outbox_table (routing_key, body) VALUES ('a', '')")
    await database.execute(
        "INSERT INTO outbox_table (routing_key, body, ordering_key) VALUES ('a', '', 'fresh')"
    )
    for mode in MODES:
        plan = await claimed(database, 500, mode, claims)
        assert plan.rows == 2
        assert plan.buffers < MOST_PAGES
        look = Plan(await explained(database, QUERIES.look, claims.positions()))
        assert look.buffers < MOST_PAGES
    await database.execute("DELETE FROM outbox_table WHERE ordering_key IS NULL OR ordering_key = 'fresh'")


@pytest.mark.parametrize("key", [None, "k"], ids=["plain", "keyed"])
async def test_what_was_sent_under_a_held_snapshot_costs_no_claim(
    postgres_url: str, database: asyncpg.Connection, key: str | None
) -> None:
    claims = Claims()
    async with held_snapshot(postgres_url):
        await fill(database, 100_000, key, keys=1_000)
        await database.execute("DELETE FROM outbox_table")
        # This one reads it all.
        assert await keys_of_claim(database, claims) == []
        await assert_claims_little(database, claims)


@pytest.mark.parametrize(
    "state",
    ["send_after = now() + interval '1 day'", "parked_at = now()"],
    ids=["due tomorrow", "parked"],
)
async def test_keys_that_wait_cost_no_claim(database: asyncpg.Connection, state: str) -> None:
    await fill(database, 100_000, "waits", keys=100_000)
    await database.execute(f"UPDATE outbox_table SET {state}")
    claims = Claims()
    # This one reads the dead rows that the update has left.
    assert await keys_of_claim(database, claims) == []
    await assert_claims_little(database, claims)
    await database.execute("VACUUM ANALYZE outbox_table")
    await assert_claims_little(database, Claims())


async def test_keys_with_many_due_rows_that_wait_cost_no_claim(database: asyncpg.Connection) -> None:
    await fill(database, 100_000, "stuck", keys=100)
    await database.execute("UPDATE outbox_table SET parked_at = now() WHERE id <= 100")
    await fill(database, 10, "flows")
    claims = Claims()
    # All are read once, in ever larger pages.
    assert await claims_until(database, claims, "flows") < 30
    await database.execute("DELETE FROM outbox_table WHERE ordering_key = 'flows'")
    await keys_of_claim(database, claims)
    await assert_claims_little(database, claims)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("is_analyzed", [False, True], ids=["unknown", "empty"])
async def test_a_claim_that_was_planned_for_an_empty_table_reads_little(
    database: asyncpg.Connection, mode: str, *, is_analyzed: bool
) -> None:
    if is_analyzed:
        await database.execute("ANALYZE outbox_table")
    for name, value in {**SESSION, "plan_cache_mode": mode}.items():
        await database.execute("SELECT set_config($1, $2, false)", name, value)
    await database.execute(f"PREPARE claim AS {QUERIES.claim}")
    await explain_prepared(database, "claim", Claims().begin(500).arguments)
    await fill(database, 50_000, "k", keys=50)
    await fill(database, 50_000)
    plan = Plan(await explain_prepared(database, "claim", Claims().begin(500).arguments))
    assert plan.rows == 550
    # The rows of both pages, and a first row for each key.
    assert plan.buffers < 6_000


async def test_a_sweep_reads_in_pages(database: asyncpg.Connection) -> None:
    await fill(database, 100_000, "stuck")
    await database.execute("UPDATE outbox_table SET parked_at = now() WHERE id = 1")
    for mode in MODES:
        await database.execute(f"SET plan_cache_mode = {mode}")
        end = await database.fetchval("SELECT (extract(epoch FROM now()) * 1000000)::int8")
        plan = Plan(await explained(database, QUERIES.claimable_keys, (None, 0, end, 0, 5_000)))
        assert plan.buffers < 3 * 5_000
