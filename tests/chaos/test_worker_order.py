"""Ordered listeners, of which the active one is killed or asked to leave."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import groupby
from uuid import UUID, uuid4

import pytest

from tests.chaos.conftest import MakeWorkplace, Measure
from tests.chaos.waiting import eventually
from tests.chaos.workplace import Workplace

_PAUSE_SECONDS = 0.04


@asynccontextmanager
async def load(place: Workplace) -> AsyncIterator[list[UUID]]:
    """Publish one message after the other while the block runs; their ids in the order of the queue."""
    published: list[UUID] = []
    is_over = False

    async def publish() -> None:
        async with place.publishing() as send:
            while not is_over:
                message_id = uuid4()
                await send(message_id)
                published.append(message_id)
                await asyncio.sleep(_PAUSE_SECONDS)

    task = asyncio.create_task(publish())
    try:
        yield published
        is_over = True
        await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def more_calls(place: Workplace, count: int) -> None:
    """Wait until so many further messages were begun."""
    target = len({call.message_id for call in place.calls("ordered")}) + count

    async def have_begun() -> bool:
        return len({call.message_id for call in place.calls("ordered")}) >= target

    await eventually(f"{count} further messages were begun", have_begun)


@pytest.mark.parametrize("verb", ["kill", "terminate"])
async def test_order_is_kept_when_the_active_worker_goes(
    workplace: MakeWorkplace, measured: Measure, verb: str
) -> None:
    rounds = 6
    place = await workplace("ordered", trouble=verb == "kill", most_seconds=0.01)
    workers = {worker.pid: worker for worker in [await place.start() for _ in range(2)]}
    async with load(place) as published:
        for _ in range(rounds):
            await more_calls(place, 10)
            active = workers.pop(place.calls("ordered")[-1].pid)
            if verb == "kill":
                active.kill()
            else:
                assert await active.terminate() == 0, active.log
            new = await place.start()
            workers[new.pid] = new
    await place.flush()
    await place.leave()
    calls = [call.message_id for call in place.calls("ordered")]
    begun = [message_id for message_id, _ in groupby(calls)]
    measured(f"calls beyond the {len(published)} messages after {rounds} times", len(calls) - len(published))
    # A repetition comes at the message's own place, before any that is behind it.
    assert begun == published
    if verb == "terminate":
        assert calls == published
