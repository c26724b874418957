"""Several hosts in a URL: the database or the broker moves to another one while messages flow."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import pytest

from outbox_cli.local import Services
from tests.chaos.conftest import MakeWorkplace, Measure, workplaces
from tests.chaos.standby import Pair, connected, replicated, with_ports
from tests.chaos.test_relay_connections import sessions
from tests.chaos.waiting import eventually
from tests.chaos.workplace import Workplace
from tests.chaos.world import World
from tests.integration.test_worker_inbox import Door

PREFETCH = 5
RELAY = {"batch_size": 50, "lanes": 2, "publish_timeout": 2, "backoff_initial": 0.1, "backoff_maximum": 0.5}
RELAYED_TWICE = 2 * 50
"""Both lanes may have published a batch that they could not settle."""

NOTICED_SECONDS = 60
"""After so long the worker, the slower of the two, leaves a session whose server answers nothing."""

FAILURES = 2 * 7
"""After so many of both lanes together, the pause between two tries does not grow any more."""


@pytest.fixture
def pair() -> Iterator[Pair]:
    with replicated() as pair:
        yield pair


@pytest.fixture
async def replicated_workplace(
    services: Services, rabbitmq_url: str, pair: Pair, tmp_path: Path
) -> AsyncIterator[MakeWorkplace]:
    """Makes workplaces on a database of the pair and a vhost of the shared broker."""
    name = f"test_{uuid4().hex}"
    connection = await asyncpg.connect(pair.primary.url)
    await connection.execute(f"CREATE DATABASE {name}")
    await connection.close()
    both = Services(pair.primary, services.rabbitmq)
    async with World(both, pair.url(name), rabbitmq_url, tmp_path) as world, workplaces(world) as make:
        yield make


@pytest.mark.parametrize("verb", ["kill", "stop"])
async def test_a_promoted_standby_takes_over_without_a_loss(
    pair: Pair, replicated_workplace: MakeWorkplace, measured: Measure, verb: str
) -> None:
    place = await replicated_workplace("once", relayed_twice=RELAYED_TWICE)
    await place.start(prefetch_count=PREFETCH)
    relay = await place.world.start_relay(**RELAY)

    async def waits_longest() -> bool:
        return relay.log.count("lost Postgres") >= FAILURES

    async with place.world.load(limit=3000, writers=3, pause_seconds=0.05):
        await place.more_handled(100)
        await asyncio.to_thread(getattr(pair.primary, verb))
        began = time.monotonic()
        await eventually("the relay waits as long as it ever does between two tries", waits_longest)
        await pair.promote()
        measured("seconds from the end of the primary to the promotion", time.monotonic() - began)
        sent, handled = await asyncio.gather(more_sent(place), place.more_handled())
        measured("seconds from the promotion to the next message sent", sent)
        measured("seconds from the promotion to the next message handled", handled)
        await place.more_handled(200)
    await place.close_the_books()
    measured("messages", len(place.world.ledger.committed))
    # The outage is no attempt of a message.
    assert {call.attempt for call in place.calls("once")} == {1}


async def test_relay_and_worker_leave_a_primary_that_answers_nothing(
    pair: Pair, replicated_workplace: MakeWorkplace, measured: Measure
) -> None:
    """Connections stay open, and new ones are accepted by the kernel: as of a machine that was cut off."""
    place = await replicated_workplace("once", relayed_twice=RELAYED_TWICE)
    await place.start(prefetch_count=PREFETCH)
    await place.world.start_relay(**RELAY)
    async with place.world.load(limit=3000, writers=3, pause_seconds=0.05):
        await place.more_handled(100)
        await pair.freeze_primary()
        await pair.promote()
        began = time.monotonic()
        async with connected(pair.standby.url) as standby:

            async def have_moved() -> bool:
                return {"outbox-relay", "outbox-worker"} <= {
                    row["application_name"] for row in await standby.fetch("SELECT * FROM pg_stat_activity")
                }

            await eventually("both use the promoted server", have_moved, seconds=2 * NOTICED_SECONDS)
        measured("seconds from the promotion until both use the promoted server", time.monotonic() - began)
        # Whoever promotes a standby makes sure of that.
        await asyncio.to_thread(pair.primary.kill)
        await place.more_handled(200)
    await place.close_the_books()
    measured("messages", len(place.world.ledger.committed))
    assert {call.attempt for call in place.calls("once")} == {1}


async def test_relay_and_worker_move_to_the_other_host_of_a_broker(
    workplace: MakeWorkplace, measured: Measure
) -> None:
    place = await workplace("once", relayed_twice=2 * RELAYED_TWICE)
    parts = urlsplit(place.world.rabbitmq_url)
    doors = [Door(parts.hostname or "", parts.port or 5672) for _ in range(2)]
    # The second refuses connections until it is open.
    await doors[0].open()
    await doors[1].open()
    await doors[1].shut()
    url = with_ports(place.world.rabbitmq_url, *(door.own_port for door in doors))
    worker = await place.start(prefetch_count=PREFETCH, broker_url=url)
    relay = await place.world.start_relay({"OUTBOX_BROKER_URL": url}, **RELAY)
    async with place.world.load(limit=3000, pause_seconds=0.05):
        await place.more_handled(50)
        for here, there in (doors, reversed(doors)):
            await there.open()
            await here.shut()
            sent, handled = await asyncio.gather(more_sent(place), place.more_handled())
            measured("seconds from the loss of a host to the next message sent", sent)
            measured("seconds from the loss of a host to the next message handled", handled)
            await place.more_handled(50)
            await asyncio.gather(relay.ready(), worker.ready())
    await place.close_the_books()
    measured("messages", len(place.world.ledger.committed))
    for door in doors:
        await door.shut()


async def test_a_relay_leaves_a_session_whose_server_became_read_only(empty_private_world: World) -> None:
    world = empty_private_world
    await world.bind()
    await world.consume()
    relay = await world.start_relay(lanes=1)
    application = world.application()
    async with world.database() as database:
        await application.transact(database)
        await world.everything_arrives()
        left = await sessions(database, "outbox-relay")
        await database.execute("SET default_transaction_read_only = off")
        await database.execute("ALTER SYSTEM SET default_transaction_read_only = on")
        try:
            await database.execute("SELECT pg_reload_conf()")

            async def is_refused() -> bool:
                await application.transact(database)
                return "read-only transaction" in relay.log

            async def is_left() -> bool:
                return not left & await sessions(database, "outbox-relay")

            await eventually("the relay may not write", is_refused)
            await eventually("the relay has left its session", is_left)
        finally:
            await database.execute("ALTER SYSTEM RESET default_transaction_read_only")
            await database.execute("SELECT pg_reload_conf()")
    await world.close_the_books()


async def more_sent(place: Workplace) -> float:
    """Wait until a relay has sent a further message, a follow-up; how many seconds that took."""
    before = len(place.follow_ups.arrived)

    async def has_come() -> bool:
        return len(place.follow_ups.arrived) > before

    return await eventually("a relay has sent a further message", has_come)
