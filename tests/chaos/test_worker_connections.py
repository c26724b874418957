"""Connections, channels and queues that are taken away from workers while messages flow."""

import pytest

from outbox.topology import dead_letter_queue
from tests.chaos.conftest import MakeWorkplace, Measure
from tests.chaos.test_relay_connections import terminate
from tests.chaos.waiting import eventually

TOGETHER = ("plain", "once", "deduplicating")
PREFETCH = 5
SETTINGS = {"prefetch_count": PREFETCH}
BATCH = 50


async def test_database_sessions_ended_under_load_cost_the_worker_no_message(
    workplace: MakeWorkplace, measured: Measure
) -> None:
    rounds, ended = 4, 0
    # The others' handlers use connections of their own, and what becomes of those is their affair.
    place = await workplace("once")
    worker = await place.start(**SETTINGS)
    await place.world.start_relay()
    async with place.world.load(pause_seconds=0.05), place.world.database() as database:
        for _ in range(rounds):
            await place.more_handled(20)
            ended += len(await terminate(database, "outbox-worker"))
            measured("seconds until 20 more were handled", await place.more_handled(20))
    assert ended >= rounds
    await worker.ready()
    await place.close_the_books()
    measured("messages", len(place.world.ledger.committed))


@pytest.mark.parametrize("kind", ["consuming", "publishing"])
async def test_broker_connections_closed_under_load_lose_nothing(
    workplace: MakeWorkplace, measured: Measure, kind: str
) -> None:
    rounds = 2
    place = await workplace(*TOGETHER, trouble=True)
    worker = await place.start(**SETTINGS)
    await place.world.start_relay()
    closed: set[str] = set()

    async def is_back() -> bool:
        return bool(await place.world.connections(f"outbox-worker-{kind}@") - closed)

    async with place.world.load(limit=300, pause_seconds=0.1):
        for _ in range(rounds):
            await eventually("the worker has a connection that was not closed", is_back)
            for name in await place.world.connections(f"outbox-worker-{kind}@") - closed:
                await place.world.close_connection(name)
                closed.add(name)
            measured(f"seconds until 20 more were handled, {kind}", await place.more_handled(20))
    assert len(closed) >= rounds
    await worker.ready()
    duplicates = await place.close_the_books()
    measured(f"duplicates among {len(place.world.ledger.committed)} after {len(closed)} closed", duplicates)
    assert max(duplicates.values()) <= len(closed) * PREFETCH


async def test_a_queue_deleted_under_load_comes_back_and_what_is_emitted_then_is_handled(
    workplace: MakeWorkplace, measured: Measure
) -> None:
    """What was in the queue is gone with it. The relay keeps what it can route to no queue."""
    rounds = 3
    place = await workplace("once")
    worker = await place.start(**SETTINGS)
    relay = await place.world.start_relay(batch_size=BATCH, backoff_initial=0.1, backoff_maximum=0.5)
    ledger = place.world.ledger
    for _ in range(rounds):
        async with place.world.load(pause_seconds=0.05):
            await place.more_handled(20)
            async with place.world.channel() as channel:
                await channel.queue_delete("once")
            emitted_before = ledger.committed.keys() | ledger.unknown.keys()
            measured("seconds until 20 more were handled", await place.more_handled(20))
            await worker.ready()
        await place.world.resolve()
        await place.world.nothing_is_pending()
        await place.flush()
        gone = emitted_before - (await place.handled("once")).keys()
        measured("messages that were deleted with the queue", len(gone))
        for known in gone & ledger.committed.keys():
            del ledger.committed[known]
    assert await place.depth(dead_letter_queue("once")) == 0
    # RabbitMQ may end a connection with INTERNAL_ERROR when a queue goes while it publishes to it. What
    # was in the relay's hands then, follow-ups among it, is sent again.
    place.relayed_twice = relay.log.count("a batch could not be published and is rolled back") * BATCH
    await place.close_the_books()
