"""A Postgres and a RabbitMQ of our own that stop, crash or run out of memory under a relay."""

import asyncio
import signal
from collections.abc import Callable

import asyncpg
import pytest

from outbox_cli.local import Services
from tests.chaos.conftest import Measure
from tests.chaos.freezing import freeze_in_a_batch, locked_rows
from tests.chaos.private import on_disk
from tests.chaos.process import Process
from tests.chaos.waiting import eventually
from tests.chaos.world import QUEUE, World

BATCH, LANES = 50, 2
IN_FLIGHT = BATCH * LANES
SETTINGS = {"batch_size": BATCH, "lanes": LANES, "publish_timeout": 2, "clean_up_after": "never"}
LOOKS = 20


@pytest.fixture
async def private_world(empty_private_world: World) -> World:
    """The same with one queue that everything arrives in, and its consumer."""
    world = empty_private_world
    await world.bind()
    await world.consume()
    await on_disk(world, QUEUE)
    return world


async def nothing_is_claimed(database: asyncpg.Connection) -> None:
    """Wait until nothing is, and see that it stays so, with no attempt counted."""

    async def is_free() -> bool:
        return await locked_rows(database) == 0

    await eventually("nothing is claimed", is_free)
    for _ in range(LOOKS):
        assert await locked_rows(database) == 0
        assert await attempts(database) == 0
        await asyncio.sleep(0.02)


async def attempts(database: asyncpg.Connection) -> int:
    """The attempts of all messages that there ever were."""
    count: int = await database.fetchval("SELECT coalesce(sum(attempts), 0) FROM outbox_table")
    return count


@pytest.mark.parametrize("verb", ["stop", "kill"])
async def test_an_outage_of_the_broker_loses_nothing_and_burns_no_attempt(
    private: Services, private_world: World, measured: Measure, verb: str
) -> None:
    world = private_world
    relay = await world.start_relay(**SETTINGS)
    leaving = await world.start_relay(**SETTINGS)
    async with world.load(), world.database() as database:
        await freeze_in_a_batch(relay, world.application(transaction_size=500), database)
        if verb == "kill":
            private.rabbitmq.kill()
            relay.send(signal.SIGCONT)
        else:
            relay.send(signal.SIGCONT)
            await asyncio.to_thread(private.rabbitmq.stop)
        assert "broker: not connected" in await relay.unready("broker")
        await nothing_is_claimed(database)
        assert await leaving.terminate() == 0, leaving.log
        await asyncio.to_thread(private.rabbitmq.start)
        measured("seconds from the broker's start to readiness", await relay.ready())
        measured("seconds from then to the next message", await world.more_arrive())
    duplicates = await world.close_the_books()
    measured(f"duplicates among {len(world.ledger.committed)}", duplicates)
    assert duplicates <= 2 * IN_FLIGHT
    async with world.database() as database:
        assert await attempts(database) == 0


@pytest.mark.parametrize("verb", ["stop", "kill"])
async def test_an_outage_of_the_database_loses_nothing(
    private: Services, private_world: World, measured: Measure, verb: str
) -> None:
    world = private_world
    relay = await world.start_relay(**SETTINGS)
    async with world.load(writers=4, pause_seconds=0.002):
        async with world.database() as database:
            await freeze_in_a_batch(relay, world.application(transaction_size=500), database)
        await asyncio.to_thread(getattr(private.postgres, verb))
        relay.send(signal.SIGCONT)
        assert "database: not connected" in await relay.unready("database")
        await asyncio.to_thread(private.postgres.start)
        measured("seconds from the database's start to readiness", await relay.ready())
        measured("seconds from then to 50 more messages", await world.more_arrive(50))
    measured("messages whose COMMIT was not answered", len(world.ledger.unknown))
    measured("and which were committed", await world.resolve())
    duplicates = await world.close_the_books()
    measured(f"duplicates among {len(world.ledger.committed)}", duplicates)
    assert duplicates <= IN_FLIGHT
    async with world.database() as database:
        assert await attempts(database) == 0


async def test_an_idle_relay_is_ready_again_soon_after_the_database_is(
    private: Services, private_world: World, measured: Measure
) -> None:
    world = private_world
    relay = await world.start_relay(**SETTINGS, notification_timeout=150)
    await world.application().emit(10)
    await world.everything_arrives()
    await asyncio.to_thread(private.postgres.stop)
    await relay.unready("database: not connected")
    await asyncio.to_thread(private.postgres.start)
    measured("seconds from the database's start to readiness", await relay.ready())
    await world.application().emit(10)
    measured("seconds from then to the next message", await world.everything_arrives())
    assert await world.close_the_books() == 0


async def test_a_relay_leaves_in_order_while_the_database_is_away(
    private: Services, private_world: World
) -> None:
    world = private_world
    relay = await world.start_relay(**SETTINGS)
    await world.application().emit(100)
    await world.everything_arrives()
    await asyncio.to_thread(private.postgres.kill)
    try:
        await relay.unready("not connected")
        assert await relay.terminate() == 0, relay.log
    finally:
        await asyncio.to_thread(private.postgres.start)


async def test_a_relay_started_during_an_outage_waits_for_its_end(
    private: Services, private_world: World, measured: Measure
) -> None:
    world = private_world
    await world.application().emit(100)
    await asyncio.to_thread(private.postgres.kill)
    relay = world.launch_relay(**SETTINGS)
    try:
        await relay.unready("waiting")
    finally:
        await asyncio.to_thread(private.postgres.start)
    measured("seconds from the database's start to readiness", await relay.ready())
    await world.everything_arrives()
    assert await world.close_the_books() == 0


async def test_messages_sent_into_an_alarm_are_waited_for_on_their_connection(
    private_world: World, alarm: Callable[[bool], None]
) -> None:
    """A connection learns of the alarm when it publishes: a new one each time would publish ever more."""
    world = private_world
    relay: Process = await world.start_relay(**SETTINGS)
    await asyncio.to_thread(alarm, True)
    await world.application(transaction_size=BATCH).emit(BATCH)
    assert "broker: blocked: low on memory" in await relay.unready("blocked")
    async with world.database() as database:
        sql = "SELECT count(*) = $1 FROM outbox_table WHERE last_error LIKE '%the broker has an alarm'"
        await eventually("the lane to wait no longer", lambda: database.fetchval(sql, BATCH))
        await world.application().emit(BATCH)
        await nothing_is_claimed(database)
    await asyncio.to_thread(alarm, False)
    await world.everything_arrives()
    assert await world.close_the_books() == 0
    assert relay.log.count("low on memory") == 1


async def test_a_broker_low_on_memory_is_waited_for(
    private_world: World, measured: Measure, alarm: Callable[[bool], None]
) -> None:
    world = private_world
    relay: Process = await world.start_relay(**SETTINGS)
    async with world.load(), world.database() as database:
        await world.more_arrive(200)
        await asyncio.to_thread(alarm, True)
        assert "broker: blocked: low on memory" in await relay.unready("blocked")
        await nothing_is_claimed(database)
        await asyncio.to_thread(alarm, False)
        measured("seconds from the end of the alarm to readiness", await relay.ready())
        measured("seconds from then to the next message", await world.more_arrive())
    duplicates = await world.close_the_books()
    measured(f"duplicates among {len(world.ledger.committed)}", duplicates)
    assert duplicates <= IN_FLIGHT
    async with world.database() as database:
        assert await attempts(database) == 0
