"""Queues and exchanges that are full, missing, or taken away while messages flow."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TypeAlias
from urllib.parse import quote

import pytest

from outbox_cli.local import Services
from tests.chaos.conftest import Measure
from tests.chaos.ledger import Ledger
from tests.chaos.waiting import eventually
from tests.chaos.world import EXCHANGE, QUEUE, World
from tests.integration.administrator import management, suspended_queue

Suspend: TypeAlias = Callable[[str], AbstractAsyncContextManager[None]]

BATCH, LANES = 50, 2
PATIENT = {"batch_size": BATCH, "lanes": LANES, "backoff_initial": 0.1, "backoff_maximum": 0.5}


@pytest.fixture
def suspended(private: Services, empty_private_world: World) -> Suspend:
    """Suspends a queue of the private broker for a block."""
    return partial(suspended_queue, private, empty_private_world.rabbitmq_url)


async def close_connections(services: Services, count: int) -> None:
    """Close the connections of the relay, once the broker lists so many."""
    names: list[str] = []

    async def are_listed() -> bool:
        listed = await asyncio.to_thread(management, services, "GET", "connections")
        given = {each["name"]: each["client_properties"].get("connection_name", "") for each in listed}
        names[:] = [name for name, relay in given.items() if relay.startswith("outbox-relay@")]
        return len(names) >= count

    await eventually(f"the broker lists {count} connections", are_listed)
    for name in names:
        await asyncio.to_thread(management, services, "DELETE", f"connections/{quote(name)}")


@pytest.mark.parametrize("kind", ["quorum", "classic"])
async def test_a_queue_that_does_not_confirm_holds_up_no_other_route(
    empty_private_world: World, suspended: Suspend, measured: Measure, kind: str
) -> None:
    world, beside = empty_private_world, Ledger()
    for queue, key in (("stuck", "slow.*"), ("beside", "slow.*"), ("free", "free.*")):
        await world.bind(queue, key, {"x-queue-type": kind})
    await world.consume("free")
    await world.consume("beside", beside)
    await world.start_relay(**PATIENT, publish_timeout=2)
    both, free = (world.application(routing_keys=keys) for keys in (["slow.a", "free.a"], ["free.a"]))
    async with suspended("stuck"):
        await both.emit(600)
        slow = len(world.ledger.committed) // 2
        await free.emit(600)
        target = len(world.ledger.committed) - slow

        async def free_ones_arrived() -> bool:
            return len(world.ledger.arrived) >= target

        measured(
            "seconds until the free ones had passed", await eventually("all free ones", free_ones_arrived)
        )
        held = len(beside.arrivals)
    await world.consume("stuck")
    measured("seconds until the rest had arrived", await world.everything_arrives())
    duplicates = await world.close_the_books()
    measured("sent while the queue was suspended, and of all", (held, slow))
    measured("duplicates, and beside the stuck queue", (duplicates, beside.duplicates().total()))
    # What was behind the stuck queue's messages on their channel was sent once more on another.
    assert duplicates <= BATCH * LANES
    assert max(world.ledger.duplicates().values(), default=0) <= 1
    assert beside.duplicates().total() == 0


async def test_order_is_kept_behind_a_message_that_is_not_confirmed(
    empty_private_world: World, suspended: Suspend, measured: Measure
) -> None:
    world = empty_private_world
    await world.bind("stuck", "slow.*")
    await world.start_relay(**PATIENT, publish_timeout=2)
    application = world.application(routing_keys=["slow.a"], keys=10)
    async with world.database() as database:

        async def some_are_leased() -> bool:
            leased = "SELECT count(*) FROM outbox_table WHERE last_error LIKE 'not confirmed%'"
            return bool(await database.fetchval(leased) > 0)

        async with suspended("stuck"):
            await application.emit(100)
            await eventually("some messages are not confirmed", some_are_leased)
            await application.emit(100)
        await world.consume("stuck")
        measured("seconds until all had arrived", await world.everything_arrives())
    assert await world.close_the_books() == 0
    assert world.ledger.out_of_order() == {}


@pytest.mark.parametrize("trouble", ["connection", "relay"])
async def test_unconfirmed_messages_are_sent_again_when_nobody_awaits_them(
    private: Services, empty_private_world: World, suspended: Suspend, measured: Measure, trouble: str
) -> None:
    world = empty_private_world
    await world.bind("stuck", "slow.*", {"x-queue-type": "classic"})
    relay = await world.start_relay(**PATIENT, publish_timeout=2, clean_up_after="never")
    async with world.database() as database:

        async def all_are_leased() -> bool:
            others = "SELECT count(*) FROM outbox_table WHERE last_error IS NULL"
            return bool(await database.fetchval(others) == 0)

        async with suspended("stuck"):
            await world.application(routing_keys=["slow.a"], transaction_size=20).emit(20)
            await eventually("no message is confirmed", all_are_leased)
            if trouble == "relay":
                relay.kill()
                # As if the leases had expired.
                await database.execute("UPDATE outbox_table SET send_after = now()")
                await world.start_relay(**PATIENT, publish_timeout=2, clean_up_after="never")
            else:
                await close_connections(private, count=2)

                async def are_given_back() -> bool:
                    # A probe may be under way on the next connection.
                    attempts = "SELECT sum(attempts) FROM outbox_table"
                    return bool(await database.fetchval(attempts) < 5)

                await eventually("the messages are given back", are_given_back)
        await world.consume("stuck")
        measured("seconds until all had arrived", await world.everything_arrives())
        measured("duplicates", await world.close_the_books())
        assert max(world.ledger.duplicates().values(), default=0) <= 2


async def test_a_full_queue_holds_up_nobody_else(empty_world: World, measured: Measure) -> None:
    world = empty_world
    await world.bind("full", "full.*", {"x-max-length": 100, "x-overflow": "reject-publish"})
    await world.bind("free", "free.*")
    await world.consume("free")
    await world.start_relay(**PATIENT)
    full, free = (world.application(routing_keys=[key]) for key in ("full.order", "free.order"))
    await full.emit(600)
    async with world.database() as database:

        async def some_are_refused() -> bool:
            refused = "SELECT count(*) FROM outbox_table WHERE attempts > 0 AND last_error LIKE 'nacked%'"
            return bool(await database.fetchval(refused) > 0)

        await eventually("some messages are refused", some_are_refused)
    target = len(world.ledger.arrived) + 600

    async def free_ones_arrived() -> bool:
        return len(world.ledger.arrived) >= target

    await free.emit(600)
    measured("seconds until 600 had passed", await eventually("the free queue flows on", free_ones_arrived))
    assert {arrival.queue for arrival in world.ledger.arrivals} == {"free"}
    await world.consume("full")
    measured("seconds until the full queue had taken the rest", await world.everything_arrives())
    assert await world.close_the_books() == 0


async def test_what_nobody_is_bound_for_waits_for_the_binding(empty_world: World, measured: Measure) -> None:
    world = empty_world
    await world.start_relay(**PATIENT)
    await world.application().emit(300)
    async with world.database() as database:

        async def all_came_back() -> bool:
            waiting = "SELECT count(*) FROM outbox_table WHERE attempts > 0 AND last_error LIKE 'unroutable%'"
            return bool(await database.fetchval(waiting) == len(world.ledger.committed))

        await eventually("every message came back", all_came_back)
    await world.bind()
    await world.consume()
    measured("seconds until all had arrived", await world.everything_arrives())
    assert await world.close_the_books() == 0


async def test_an_exchange_deleted_under_load_is_declared_again(world: World, measured: Measure) -> None:
    rounds = 3
    await world.start_relay(**PATIENT)
    async with world.load():
        for _ in range(rounds):
            await world.more_arrive(50)
            async with world.channel() as channel:
                await channel.exchange_delete(EXCHANGE)
            seconds = await eventually("the exchange is back", world.exchange_exists)
            measured("seconds until the exchange was back", seconds)
            await world.bind(QUEUE)
    duplicates = await world.close_the_books()
    measured(f"duplicates among {len(world.ledger.committed)} after {rounds} deletions", duplicates)
    assert duplicates <= rounds * BATCH * LANES
