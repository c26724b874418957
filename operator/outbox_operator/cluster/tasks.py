"""Tasks of others: kept until they are done, and ended even if they swallow a cancellation."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

_AGAIN_SECONDS = 0.2


def keeping_tasks() -> Callable[..., asyncio.Task[Any]]:
    """Return a factory whose tasks are not collected as garbage before they are done.

    An event loop refers to its tasks weakly, and those of kopf refer only to each other once
    `kopf.spawn_tasks` was cancelled.
    """
    kept = set[asyncio.Task[Any]]()

    def make(
        loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(coroutine, loop=loop, **options)
        kept.add(task)
        task.add_done_callback(kept.discard)
        return task

    return make


async def end_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel them as often as it takes.

    One cancellation can be swallowed: it arrives while a task suppresses that of something it waits for.
    """
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        done, left = await asyncio.wait(left, timeout=_AGAIN_SECONDS)
        for task in done:
            # Asked for, so that asyncio does not tell of it as of an error that nobody saw.
            _ = task.cancelled() or task.exception()


async def end_other_tasks() -> None:
    """End all tasks of this loop but the caller's."""
    caller = asyncio.current_task()
    while others := asyncio.all_tasks() - {caller}:
        await end_tasks(others)
