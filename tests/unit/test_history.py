import asyncio
import contextvars
import uuid
from collections.abc import AsyncIterator

from outbox import get_tracking_ids, tracking


def test_outside_of_tracking_there_are_no_ids() -> None:
    assert get_tracking_ids() == []


def test_tracking_nests_and_ends() -> None:
    with tracking() as outer:
        assert [uuid.UUID(each).version for each in outer] == [4]
        with tracking() as inner:
            assert inner[:1] == outer
            assert len(set(inner)) == 2
            assert get_tracking_ids() == inner
        assert get_tracking_ids() == outer
    assert get_tracking_ids() == []


def test_a_history_can_be_continued() -> None:
    with tracking(["a", "b"]):
        assert get_tracking_ids() == ["a", "b"]


def test_a_block_may_be_left_in_another_context_than_it_was_entered_in() -> None:
    """As a web framework does with a dependency that yields: each half runs in a copy of the context."""
    block = tracking()
    request = contextvars.copy_context()
    entered = request.run(block.__enter__)
    left = request.copy()
    left.run(block.__exit__, None, None, None)
    assert left.run(get_tracking_ids) == []
    assert request.run(get_tracking_ids) == entered
    assert get_tracking_ids() == []


async def test_a_generator_finished_by_another_task_ends_its_tracking() -> None:
    async def dependency() -> AsyncIterator[list[str]]:
        with tracking() as ids:
            yield ids

    generator = dependency()
    ids = await anext(generator)
    assert get_tracking_ids() == ids

    async def finish() -> list[str]:
        assert await anext(generator, None) is None
        return get_tracking_ids()

    assert await asyncio.create_task(finish()) == []
