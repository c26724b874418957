"""Relays that are killed, frozen or asked to leave in the middle of their work."""

import signal

import asyncpg
import pytest

from outbox.table import TableName
from outbox_core.database import Database
from outbox_relay.claims import Claims
from outbox_relay.hooks import Hooks
from outbox_relay.metrics import Metrics
from outbox_relay.queries import Queries
from outbox_relay.routes import Routes
from outbox_relay.settings import Settings
from outbox_relay.transfer import Transfer
from outbox_relay.unconfirmed import Unconfirmed
from tests.chaos.conftest import Measure
from tests.chaos.freezing import freeze_in_a_batch
from tests.chaos.waiting import eventually
from tests.chaos.world import World
from tests.integration.pgbouncer import PgBouncer

BATCH, LANES, BURST = 50, 2, 1000
IN_FLIGHT = BATCH * LANES
"""What one relay has claimed at most: what is sent twice at most when it dies."""


async def test_what_a_killed_relay_had_claimed_is_sent_by_another(world: World, measured: Measure) -> None:
    rounds = 4
    settings = {"batch_size": BATCH, "lanes": LANES}
    relays = [await world.start_relay(**settings) for _ in range(2)]
    application = world.application(transaction_size=BURST)
    async with world.database() as database:
        for number in range(rounds):
            victim = relays.pop(0)
            await freeze_in_a_batch(victim, application, database)
            victim.kill()
            rows = await database.fetch("SELECT id FROM outbox_table")
            seconds = await sent(database, [row["id"] for row in rows])
            measured(f"kill {number}: seconds until the {len(rows)} rows of that moment were sent", seconds)
            relays.append(await world.start_relay(**settings))
    duplicates = await world.close_the_books()
    measured(f"duplicates among {len(world.ledger.committed)} after {rounds} kills", duplicates)
    assert duplicates <= rounds * IN_FLIGHT


async def sent(database: asyncpg.Connection, ids: list[int]) -> float:
    """Wait until these rows were sent; how many seconds that took."""

    async def are_gone() -> bool:
        left = await database.fetchval("SELECT count(*) FROM outbox_table WHERE id = ANY ($1::bigint[])", ids)
        return bool(left == 0)

    return await eventually(f"{len(ids)} rows were sent", are_gone)


@pytest.mark.parametrize(
    ("wait_event", "body_size"),
    [
        pytest.param("ClientRead", 0, id="publishing"),
        # A batch of which is more than the sockets' buffers take.
        pytest.param("ClientWrite", 300_000, id="reading"),
    ],
)
async def test_the_rows_of_a_frozen_relay_are_freed_by_the_server(
    world: World, measured: Measure, wait_event: str, body_size: int
) -> None:
    settings = {"batch_size": BATCH, "lanes": LANES, "publish_timeout": 1}
    application = world.application(body_size=body_size, transaction_size=100 if body_size else BURST)
    frozen = await world.start_relay(**settings)
    async with world.database() as database:
        locked = await freeze_in_a_batch(frozen, application, database, wait_event)
        other = await world.start_relay(**settings)
        rows = await database.fetch("SELECT id FROM outbox_table")
        seconds = await sent(database, [row["id"] for row in rows])
        measured(f"seconds until the {locked} rows of a frozen relay were sent by another", seconds)
    frozen.send(signal.SIGCONT)
    assert await other.terminate() == 0
    await world.application().emit(500)
    measured("seconds until the thawed relay had sent 500 more", await world.everything_arrives())
    duplicates = await world.close_the_books()
    measured("duplicates", duplicates)
    assert duplicates <= IN_FLIGHT


async def test_the_rows_of_a_relay_frozen_behind_a_pooler_are_freed_by_the_server(
    world: World, measured: Measure
) -> None:
    settings = {"batch_size": BATCH, "lanes": LANES, "publish_timeout": 1, "poll_interval": 0.05}
    application = world.application(transaction_size=BURST)
    with PgBouncer(world.postgres_url) as pooler:
        pooler.start("transaction")
        frozen = await world.start_relay({"OUTBOX_DATABASE_URL": pooler.url}, **settings)
        async with world.database() as database:
            locked = await freeze_in_a_batch(frozen, application, database, pooled=True)
            await world.start_relay(**settings)
            rows = await database.fetch("SELECT id FROM outbox_table")
            seconds = await sent(database, [row["id"] for row in rows])
            measured(f"seconds until the {locked} rows of a frozen relay were sent by another", seconds)
        frozen.kill()
        duplicates = await world.close_the_books()
    measured("duplicates", duplicates)
    assert duplicates <= IN_FLIGHT


async def test_a_batch_is_settled_without_a_question_to_the_server(world: World) -> None:
    """Between question and answer nothing would free the rows of a relay that is frozen."""
    settings = Settings()
    queries = Queries(TableName.parse(settings.table_name))
    metrics, hooks, routes = Metrics(settings.exchange_name, exposed=False), Hooks(), Routes(1, 1)
    unconfirmed = Unconfirmed(
        settings=settings,
        database=Database(world.postgres_url),
        queries=queries,
        routes=routes,
        metrics=metrics,
        hooks=hooks,
        on_change=lambda: None,
    )
    transfer = Transfer(
        settings=settings,
        queries=queries,
        metrics=metrics,
        hooks=hooks,
        routes=routes,
        unconfirmed=unconfirmed,
        claims=Claims(),
    )
    asked: list[str] = []
    async with world.database() as application:
        await application.execute("INSERT INTO outbox_table (routing_key, body) VALUES ('nobody', '')")
    database = await Database(world.postgres_url).connect()
    try:
        # All that is asked behind a pooler, where nothing stays prepared.
        await transfer.read_partitions(database)
        claimed: list[str] = []
        with database.query_logger(lambda record: claimed.append(record.query)):
            async with database.transaction():
                assert len(await transfer._claim(database, Claims().begin(10))) == 1
        assert {*claimed} - {"COMMIT;"} == {"BEGIN;", queries.claim}
        await transfer.rehearse(database)
        with database.query_logger(lambda record: asked.append(record.query)):
            await database.execute("BEGIN")
            await database.execute(queries.back_off, [7], [1], [0.5], ["nacked"], [1])
            await database.execute(queries.park, [7], [1], ["malformed"])
            await database.execute(queries.conclusion([(7, 1)], [(7, 2)]))
    finally:
        await database.close()
    assert asked == ["BEGIN", queries.back_off, queries.park, queries.conclusion([(7, 1)], [(7, 2)])]


async def test_sigterm_under_load_loses_and_repeats_nothing(world: World, measured: Measure) -> None:
    settings = {"batch_size": BATCH, "lanes": LANES}
    async with world.load():
        for _ in range(3):
            relay = await world.start_relay(**settings)
            await world.application().emit(500)
            await world.more_arrive(100)
            assert await relay.terminate() == 0, relay.log
        await world.start_relay(**settings)
    duplicates = await world.close_the_books()
    measured("messages", len(world.ledger.committed))
    assert duplicates == 0


async def test_the_order_of_each_key_survives_kills(world: World, measured: Measure) -> None:
    rounds = 4
    settings = {"batch_size": BATCH, "lanes": LANES}
    relays = [await world.start_relay(**settings) for _ in range(2)]
    application = world.application(transaction_size=BURST, keys=50)
    async with world.database() as database:
        for _ in range(rounds):
            victim = relays.pop(0)
            await freeze_in_a_batch(victim, application, database)
            victim.kill()
            relays.append(await world.start_relay(**settings))
    duplicates = await world.close_the_books()
    measured(f"duplicates among {len(world.ledger.committed)} after {rounds} kills", duplicates)
    assert world.ledger.out_of_order() == {}
    assert duplicates <= rounds * IN_FLIGHT
