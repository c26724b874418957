"""What a claim takes, from whom, and what it costs."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator

import asyncpg
import pytest

from outbox import Emitter, schema
from outbox_relay.claims import Claims
from tests.integration.claiming import QUERIES, assert_walks_the_pending_index, claimed, claims_until, fill
from tests.integration.relaying import Traffic, traffic_between

BATCHES = (50, 500)
MODES_AND_BATCHES = [
    (mode, batch) for mode in ("force_custom_plan", "force_generic_plan") for batch in BATCHES
]
"""A statement that was prepared is planned for its parameters at first, and once and for all later."""


@pytest.fixture
async def traffic(postgres_url: str, rabbitmq_url: str) -> AsyncIterator[Traffic]:
    async with traffic_between(postgres_url, rabbitmq_url) as traffic:
        yield traffic


@pytest.fixture
async def database(postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(postgres_url)
    await schema.create(connection)
    yield connection
    await connection.close()


async def test_large_bodies_go_a_few_at_a_time_and_arrive_whole(traffic: Traffic) -> None:
    inbox = await traffic.inbox("#")
    bodies = [bytes([number]) * (5 * 1024 * 1024) for number in range(8)]
    sent = [await traffic.emit("large", body) for body in bodies]
    sent += await traffic.emit_many(20)
    await traffic.relay().run_once()
    assert len(await traffic.ids()) == 5, "one batch takes the small ones and three of the large"
    await traffic.relaying()
    await inbox.gets(sent)
    assert Counter(inbox.ids) == Counter(sent)
    arrived = {message.message_id: message.body for message in inbox.messages}
    assert [arrived[message_id] for message_id in sent[:8]] == bodies


@pytest.fixture
async def application(postgres_url: str, database: asyncpg.Connection) -> AsyncIterator[asyncpg.Connection]:
    """Another session on the same table."""
    connection = await asyncpg.connect(postgres_url)
    yield connection
    await connection.close()


async def test_a_claim_takes_what_was_emitted_after_its_transaction_began(
    database: asyncpg.Connection, application: asyncpg.Connection
) -> None:
    """A lane begins the transaction of its next batch early, and is then told of what came meanwhile."""
    async with database.transaction():
        # It has begun when it has a time.
        await database.fetchval("SELECT now()")
        async with application.transaction():
            plain = await Emitter().emit(application, "a", 1)
            keyed = await Emitter().emit(application, "a", 2, ordering_key="k")
        *rows, _ = await database.fetch(QUERIES.claim, *Claims().begin(10).arguments)
    assert [row["message_id"] for row in rows] == [str(plain), str(keyed)]


async def test_nothing_is_sent_or_parked_at_a_time_before_it_was_due(
    database: asyncpg.Connection, application: asyncpg.Connection
) -> None:
    """However early the transaction of its batch began."""
    await database.execute("BEGIN")
    await database.fetchval("SELECT now()")
    async with application.transaction():
        await Emitter().emit(application, "a", 1)
        await Emitter().emit(application, "a", 2)
    sent, parked, _ = await database.fetch(QUERIES.claim, *Claims().begin(10).arguments)
    await database.execute(QUERIES.park, [parked["partition"]], [parked["id"]], ["for a test"])
    await database.execute(QUERIES.conclusion([], [(sent["partition"], sent["id"])]))
    ends = "SELECT id FROM outbox_table WHERE send_after <= coalesce(sent_at, parked_at) ORDER BY id"
    assert [row["id"] for row in await database.fetch(ends)] == [sent["id"], parked["id"]]


async def test_two_relays_on_one_table_send_every_message_exactly_once(traffic: Traffic) -> None:
    inbox = await traffic.inbox("#")
    first = await traffic.relaying(batch_size=50)
    second = await traffic.relaying(batch_size=50)
    sent = []
    for _ in range(10):
        sent += await traffic.emit_many(500)
    await inbox.gets(sent)
    await first.stop()
    await second.stop()
    assert Counter(inbox.ids) == Counter(sent)
    assert await traffic.ids() == []


async def test_a_serializable_default_repeats_no_message(traffic: Traffic, postgres_url: str) -> None:
    name = await traffic.database.fetchval("SELECT current_database()")
    await traffic.database.execute(
        f"""
        ALTER DATABASE {name} SET default_transaction_isolation = 'serializable';
        CREATE TABLE levels (level text);
        CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN INSERT INTO levels SELECT current_setting('transaction_isolation'); RETURN NULL; END $$;
        CREATE TRIGGER note AFTER DELETE ON outbox_table EXECUTE FUNCTION note()
        """
    )
    inbox = await traffic.inbox("#")
    relays = [await traffic.relaying(batch_size=20) for _ in range(2)]
    emitters = [await asyncpg.connect(postgres_url) for _ in range(4)]

    async def emit(application: asyncpg.Connection) -> list[str]:
        sent: list[str] = []
        while len(sent) < 100:
            with contextlib.suppress(asyncpg.SerializationError):
                async with application.transaction():
                    message_id = await Emitter().emit(application, "a", len(sent))
                sent.append(str(message_id))
        return sent

    sent = [message_id for each in await asyncio.gather(*map(emit, emitters)) for message_id in each]
    await inbox.gets(sent)
    for relay in relays:
        await relay.stop()
    assert Counter(inbox.ids) == Counter(sent)
    assert await traffic.database.fetch("SELECT DISTINCT level FROM levels") == [("read committed",)]
    for application in emitters:
        await application.close()


async def test_a_claim_costs_the_same_whatever_the_backlog(database: asyncpg.Connection) -> None:
    costs: dict[int, dict[int, int]] = {}
    for backlog in (2_000, 200_000):
        await database.execute("TRUNCATE outbox_table")
        await fill(database, backlog)
        # A relay may meet a table that Postgres has no statistics of yet.
        costs[backlog] = await costs_of_claims(database)
        await database.execute("ANALYZE outbox_table")
        for batch, cost in (await costs_of_claims(database)).items():
            costs[backlog][batch] = max(cost, costs[backlog][batch])
    for batch in BATCHES:
        assert costs[200_000][batch] <= 2 * costs[2_000][batch], costs
        # A page of the table and a bit of index for each row, wherever the row is.
        assert costs[200_000][batch] <= 4 * batch + 50, costs


async def costs_of_claims(database: asyncpg.Connection) -> dict[int, int]:
    """The buffers that a claim touches, by the size of its batch."""
    costs: dict[int, int] = {}
    for mode, batch in MODES_AND_BATCHES:
        plan = await claimed(database, batch, mode)
        assert plan.rows == batch
        assert_walks_the_pending_index(plan, batch)
        costs[batch] = max(plan.buffers, costs.get(batch, 0))
    return costs


async def test_a_key_that_is_held_back_costs_the_others_nothing(database: asyncpg.Connection) -> None:
    await fill(database, 200_000, "stuck")
    await database.execute("UPDATE outbox_table SET parked_at = now() WHERE id = 1")
    await fill(database, 2_000)
    await fill(database, 10, "flowing")
    await database.execute("ANALYZE outbox_table")
    claims = Claims()
    number = await claims_until(database, claims, "flowing")
    # Its rows are read once, more in each claim.
    assert number < 30
    for mode, batch in MODES_AND_BATCHES:
        plan = await claimed(database, batch, mode, claims)
        # The first row of the key that flows, and none of the one that is stuck.
        assert plan.rows == batch + 1
        assert_walks_the_pending_index(plan, batch)
        assert plan.buffers <= 4 * batch + 100


async def test_messages_that_were_sent_and_kept_cost_a_claim_nothing(database: asyncpg.Connection) -> None:
    await fill(database, 50_000)
    await database.execute("UPDATE outbox_table SET sent_at = now()")
    await fill(database, 2_000)
    await database.execute("VACUUM ANALYZE outbox_table")
    plan = await claimed(database, 100)
    assert plan.rows == 100
    assert_walks_the_pending_index(plan, 100)
    assert plan.buffers <= 4 * 100 + 50
