"""Workers that are killed, frozen or asked to leave in the middle of their work."""

import asyncio
import random
import signal

from tests.chaos.conftest import MakeWorkplace, Measure

TOGETHER = ("plain", "once", "deduplicating")
PREFETCH = 5


async def test_killed_at_random_moments_workers_lose_nothing_and_exactly_once_is_exact(
    workplace: MakeWorkplace, measured: Measure
) -> None:
    rounds, crew_size = 200, 3
    place = await workplace(*TOGETHER, trouble=True, kills_many=True)
    seed = random.randrange(1 << 32)  # noqa: S311 - no secret
    moments = random.Random(seed)  # noqa: S311 - no secret
    measured("seed", seed)
    crew = [await place.start(prefetch_count=PREFETCH) for _ in range(crew_size)]
    await place.world.start_relay()
    killed = set()
    # In bursts, so that each worker has a handful of messages under way.
    async with place.world.load(limit=10**6, pause_seconds=0.3, transaction_size=10):
        for number in range(rounds):
            # At the head of a long queue a message would meet one kill after the other.
            await place.backlog_is_below(60)
            crew.append(place.launch(prefetch_count=PREFETCH))
            # Mostly one that works, and at times one that only just begins.
            victim = crew.pop(moments.randrange(len(crew)) if number % 4 == 0 else 0)
            if number % 4 != 0:
                await victim.ready()
            await asyncio.sleep(moments.uniform(0, 0.2))
            victim.kill()
            killed.add(victim.pid)
    at_work = {call.pid for call in place.journal.calls} & killed
    measured(f"of {rounds} that were killed, so many had begun a message", len(at_work))
    measured("seconds until the rest was handled", await place.everything_is_handled())
    duplicates = await place.close_the_books()
    committed = len(place.world.ledger.committed)
    measured(f"duplicates among {committed} after {rounds} kills", duplicates)
    measured("messages that met the broker's delivery limit", place.limited)
    # What a worker has in its hands when it dies comes a second time, or as a retry beside the original.
    assert max(duplicates.values()) <= rounds * PREFETCH


async def test_sigterm_under_load_loses_and_repeats_nothing(
    workplace: MakeWorkplace, measured: Measure
) -> None:
    rounds = 4
    place = await workplace(*TOGETHER)
    workers = [await place.start(prefetch_count=PREFETCH) for _ in range(2)]
    await place.world.start_relay()
    async with place.world.load(limit=600, pause_seconds=0.1):
        for _ in range(rounds):
            workers.append(await place.start(prefetch_count=PREFETCH))
            await place.more_handled(20)
            leaving = workers.pop(0)
            assert await leaving.terminate() == 0, leaving.log
    duplicates = await place.close_the_books()
    measured(f"duplicates among {len(place.world.ledger.committed)} after {rounds} restarts", duplicates)
    assert set(duplicates.values()) == {0}
    # Nothing was begun in vain, either.
    for listener in TOGETHER:
        assert len(place.calls(listener)) == len(place.world.ledger.committed), listener


async def test_the_messages_of_a_frozen_worker_are_handled_by_another(
    workplace: MakeWorkplace, measured: Measure
) -> None:
    """The broker gives up a worker without heartbeats, the server a transaction without statements."""
    place = await workplace(
        *TOGETHER,
        trouble=True,
        most_seconds=0.1,
        broker_options="heartbeat=1",
        database_options="idle_in_transaction_session_timeout=2000",
    )
    frozen = await place.start(prefetch_count=PREFETCH)
    await place.world.start_relay()
    async with place.world.load(limit=300, pause_seconds=0.1):
        await place.more_handled(20)
        frozen.send(signal.SIGSTOP)
        begun = list(place.journal.calls)
        other = await place.start(prefetch_count=PREFETCH)
        measured("seconds until another has handled 20 more", await place.more_handled(20))
        seconds = await place.are_handled(begun)
        measured("seconds until all is handled that the frozen one had begun", seconds)
        frozen.send(signal.SIGCONT)
        measured("seconds until the thawed one is ready", await frozen.ready())
        assert await other.terminate() == 0, other.log
        measured("seconds until it has handled 20 more", await place.more_handled(20))
    duplicates = await place.close_the_books()
    measured(f"duplicates among {len(place.world.ledger.committed)}", duplicates)
    assert max(duplicates.values()) <= PREFETCH
