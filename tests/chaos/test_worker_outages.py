"""A Postgres and a RabbitMQ of our own that stop, crash or run out of memory under workers."""

import asyncio
from collections.abc import Callable

import pytest

from outbox.topology import dead_letter_queue
from outbox_cli.local import Services
from tests.chaos.conftest import MakeWorkplace, Measure
from tests.chaos.private import on_disk
from tests.chaos.workplace import FOLLOW_UPS, TIERS

TOGETHER = ("plain", "once", "deduplicating")
PREFETCH = 5
SETTINGS = {"prefetch_count": PREFETCH}
RELAY = {"batch_size": 50, "lanes": 2, "publish_timeout": 2, "backoff_initial": 0.1, "backoff_maximum": 0.5}
RELAYED_TWICE = 2 * 50


@pytest.mark.parametrize("verb", ["stop", "kill"])
async def test_an_outage_of_the_broker_loses_nothing(
    private: Services, private_workplace: MakeWorkplace, measured: Measure, verb: str
) -> None:
    place = await private_workplace(*TOGETHER, trouble=True, relayed_twice=RELAYED_TWICE)
    workers = [await place.start(**SETTINGS) for _ in range(2)]
    await place.world.start_relay(**RELAY)
    dead = [dead_letter_queue(listener) for listener in TOGETHER]
    await on_disk(place.world, FOLLOW_UPS, *TOGETHER, *dead, *TIERS)
    async with place.world.load(limit=600, pause_seconds=0.1):
        await place.more_handled(50)
        await asyncio.to_thread(getattr(private.rabbitmq, verb))
        assert "broker: not connected" in await workers[0].unready("broker")
        await asyncio.to_thread(private.rabbitmq.start)
        seconds = max([await worker.ready() for worker in workers])
        measured("seconds from the broker's start to readiness", seconds)
        measured("seconds from then to the next message", await place.more_handled())
    duplicates = await place.close_the_books()
    measured(f"duplicates among {len(place.world.ledger.committed)}", duplicates)
    # For what was in a worker's hands, both the connection it came by and the one for its retry were lost.
    assert max(duplicates.values()) <= RELAYED_TWICE + len(workers) * PREFETCH * 2


@pytest.mark.parametrize("verb", ["stop", "kill"])
async def test_an_outage_of_the_database_burns_no_attempt_of_an_exactly_once_listener(
    private: Services, private_workplace: MakeWorkplace, measured: Measure, verb: str
) -> None:
    place = await private_workplace("once", most_seconds=0.1, relayed_twice=RELAYED_TWICE)
    worker = await place.start(**SETTINGS)
    await place.world.start_relay(**RELAY)
    # More than can be handled before the server is gone.
    await place.world.application().emit(300)
    async with place.world.load(limit=400, pause_seconds=0.1):
        await place.more_handled(20)
        await asyncio.to_thread(getattr(private.postgres, verb))
        try:
            measured("/readyz", await worker.unready("database is away"))
        finally:
            await asyncio.to_thread(private.postgres.start)
        measured("seconds from the database's start to readiness", await worker.ready())
        measured("seconds from then to the next message", await place.more_handled())
    await place.close_the_books()
    measured("messages", len(place.world.ledger.committed))
    assert {call.attempt for call in place.calls("once")} == {1}


async def test_a_broker_low_on_memory_loses_no_message_that_fails(
    private_workplace: MakeWorkplace, measured: Measure, alarm: Callable[[bool], None]
) -> None:
    place = await private_workplace(*TOGETHER, trouble=True, relayed_twice=RELAYED_TWICE)
    worker = await place.start(**SETTINGS)
    await place.world.start_relay(**RELAY)
    # The relay is blocked as well: what is to fail meanwhile has to be in the queues before.
    await place.world.application().emit(200)
    await place.world.nothing_is_pending()
    async with place.world.load(limit=400, pause_seconds=0.1):
        await asyncio.to_thread(alarm, True)
        measured("/readyz", await worker.unready("blocked"))
        await asyncio.to_thread(alarm, False)
        measured("seconds from the end of the alarm to readiness", await worker.ready())
        measured("seconds from then to 20 more", await place.more_handled(20))
    duplicates = await place.close_the_books()
    measured(f"duplicates among {len(place.world.ledger.committed)}", duplicates)
    assert max(duplicates.values()) <= RELAYED_TWICE
