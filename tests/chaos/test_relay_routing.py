"""Queues and exchanges that are full, missing, or taken away while messages flow."""

from tests.chaos.conftest import Measure
from tests.chaos.waiting import eventually
from tests.chaos.world import EXCHANGE, QUEUE, World

BATCH, LANES = 50, 2
PATIENT = {"batch_size": BATCH, "lanes": LANES, "backoff_initial": 0.1, "backoff_maximum": 0.5}


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
