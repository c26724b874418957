"""Running a coroutine from a test that has no event loop."""

from collections.abc import Callable, Coroutine
from typing import Any


def run(work: Callable[[], Coroutine[Any, Any, None]], *, waits: bool) -> None:
    """Run `work`, in an event loop of its own if it `waits` for something, and otherwise without one."""
    import asyncio  # not for tests that never call this: it takes a while to load

    if _is_running(asyncio):
        raise RuntimeError("drain_sync() would block the event loop it is in: write `await outbox.drain()`")
    if waits:
        asyncio.run(work())
    else:
        _step(work())


def _is_running(asyncio: Any) -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _step(work: Coroutine[Any, Any, None]) -> None:
    # Some libraries (Django) refuse blocking calls inside an event loop. What never waits needs none: its
    # first step is also its last.
    try:
        work.send(None)
    except StopIteration:
        return
    work.close()
    raise RuntimeError("a listener that is not async has waited for something: make it `async def`")
