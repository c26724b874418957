"""The end of all tasks of a loop."""

import asyncio
import gc
import logging

import pytest

from outbox_operator.cluster.tasks import end_other_tasks


async def _deaf(times: int, ended: list[int]) -> None:
    """Goes on after so many cancellations."""
    for _ in range(times):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue
    try:
        await asyncio.Event().wait()
    finally:
        ended.append(times)


def test_tasks_that_swallow_a_cancellation_end_as_well() -> None:
    ended: list[int] = []

    async def run() -> None:
        _tasks = [asyncio.create_task(_deaf(times, ended)) for times in range(4)]
        await asyncio.sleep(0)
        await end_other_tasks()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())
    assert ended == [0, 1, 2, 3]


def test_tasks_that_begin_meanwhile_end_as_well() -> None:
    begun: list[asyncio.Task[None]] = []

    async def heir() -> None:
        await asyncio.Event().wait()

    async def testator() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            begun.append(asyncio.create_task(heir()))

    async def run() -> None:
        _tasks = [asyncio.create_task(testator())]
        await asyncio.sleep(0)
        await end_other_tasks()

    asyncio.run(run())
    assert [task.cancelled() for task in begun] == [True]


def test_a_task_that_fails_at_its_end_is_no_error_of_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    async def failing() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("at the end")

    async def run() -> None:
        _tasks = [asyncio.create_task(failing())]
        await asyncio.sleep(0)
        await end_other_tasks()

    with caplog.at_level(logging.ERROR, "asyncio"):
        asyncio.run(run())
        gc.collect()
    assert caplog.records == []
