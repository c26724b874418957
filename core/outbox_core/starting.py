"""How a relay or a worker starts: with what it was given, and with patience for services that come later."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from typing import Any

from outbox_core.backoff import Backoff
from outbox_core.broker import BrokerState
from outbox_core.broker_errors import BrokerLostError, UnreachableError

_WAITING = Backoff(0.1, 1.0)
"""Between two tries to start while nobody answers."""

_AGAIN_SECONDS = 0.5
"""How long to wait for the end of what was cancelled, before it is cancelled again."""


async def patiently(
    step: Callable[[], Awaitable[None]],
    *,
    is_passing: Callable[[Exception], bool],
    stopping: asyncio.Event,
    on_wait: Callable[[str, int], None],
) -> None:
    """Take a step of the start, again and again while nobody answers; other failures are raised.

    `on_wait` is told what is awaited, and how often it has failed to come.
    """
    failures = 0
    while not stopping.is_set():
        try:
            await step()
            break
        except Exception as error:
            if not is_passing(error):
                raise
            reason = f"waiting: {error}"
        failures += 1
        on_wait(reason, failures)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), _WAITING.delay(failures))


@contextlib.asynccontextmanager
async def beside(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run helpers while the block runs; one that fails ends the block, and the block's end ends them."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each) for each in work]
        try:
            yield
        finally:
            await end(tasks)


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks until they have ended.

    Once may not be enough: in Python 3.11 `wait_for`, which aiormq waits with, forgets a cancellation that
    comes together with the answer.
    """
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=_AGAIN_SECONDS)


def one_of(**choices: Any) -> Any:
    """The one argument of these that is not None."""
    given = {name: value for name, value in choices.items() if value is not None}
    if len(given) != 1:
        raise TypeError(f"give exactly one of {' and '.join(choices)}")
    return next(iter(given.values()))


def broker_may_come(error: Exception) -> bool:
    """Whether waiting helps, and not a person."""
    # The subclasses of BrokerLostError are about what is wrong with an object or a permission.
    return isinstance(error, UnreachableError) or type(error) is BrokerLostError


def broker_reason(state: BrokerState) -> str | None:
    """Why nothing can be sent to the broker at the moment, or None where it can."""
    if not state.is_connected:
        return f"not connected: {state.problem}" if state.problem else "not connected"
    return None if state.blocked_reason is None else f"blocked: {state.blocked_reason}"
