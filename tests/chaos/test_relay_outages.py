"""A Postgres and a RabbitMQ of our own that stop, crash or run out of memory under a relay."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
import pytest

from outbox_cli.local import Services, runfolder, start
from outbox_cli.local.rabbitmq import RabbitMQServer
from tests.chaos.conftest import Measure
from tests.chaos.harness import QUEUE, RelayProcess, World, eventually, freeze_in_a_batch, locked_rows
from tests.integration.administrator import management, rabbitmqctl

BATCH, LANES = 50, 2
IN_FLIGHT = BATCH * LANES
SETTINGS = {"batch_size": BATCH, "lanes": LANES, "publish_timeout": 2, "clean_up_after": "never"}
LOOKS = 20


@pytest.fixture(scope="module")
def private() -> Iterator[Services]:
    """A pair that these tests may take away."""
    with start(environment={}) as services:
        yield services


@pytest.fixture
async def private_world(private: Services, tmp_path: Path) -> AsyncIterator[World]:
    """A database and a vhost of it, with one queue that everything arrives in, and its consumer."""
    name = f"test_{uuid4().hex}"
    connection = await asyncpg.connect(private.postgres.url)
    await connection.execute(f"CREATE DATABASE {name}")
    await connection.close()
    user = urlsplit(private.rabbitmq.url).username
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    await asyncio.to_thread(management, private, "PUT", f"vhosts/{name}")
    await asyncio.to_thread(management, private, "PUT", f"permissions/{name}/{user}", everything)
    urls = [
        urlunsplit(urlsplit(url)._replace(path=f"/{name}"))
        for url in (private.postgres.url, private.rabbitmq.url)
    ]
    async with World(private, urls[0], urls[1], tmp_path) as world:
        await world.bind()
        await world.consume()

        async def is_on_disk() -> bool:
            return on_disk(f"{name}_{QUEUE}")

        await eventually("the queue is on the disk", is_on_disk)
        yield world


def on_disk(queue: str) -> bool:
    """RabbitMQ 3.10 writes the name of a new quorum queue half a second late; a crash before loses it."""
    records = {path: runfolder.read(path) for path in runfolder.parent_folder().iterdir()}
    runs = [path for path, record in records.items() if record and record.owner.pid == os.getpid()]
    names = [file for run in runs for file in run.glob("rabbitmq/data/*/quorum/*/names.dets")]
    return any(queue.encode() in file.read_bytes() for file in names)


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


@pytest.fixture
def alarm(private: Services) -> Iterator[Callable[[bool], None]]:
    """Raises and clears the broker's memory alarm."""
    broker = private.rabbitmq
    if not isinstance(broker, RabbitMQServer):
        pytest.skip("needs RabbitMQ from the programs on this machine")

    def switch(on: bool) -> None:
        rabbitmqctl(broker, "set_vm_memory_high_watermark", "0.00001" if on else "0.6")

    yield switch
    switch(False)


async def test_a_broker_low_on_memory_is_waited_for(
    private_world: World, measured: Measure, alarm: Callable[[bool], None]
) -> None:
    world = private_world
    relay: RelayProcess = await world.start_relay(**SETTINGS)
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
