"""Threads for listeners that are not async.

Not a `ThreadPoolExecutor`: the interpreter waits for its threads before it exits, and a listener that never
returns would keep a worker from leaving.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any


@dataclass(frozen=True, slots=True)
class _Work:
    function: Callable[[], object]
    context: Context
    loop: asyncio.AbstractEventLoop
    done: "asyncio.Future[tuple[object, BaseException | None]]"


class Threads:
    """At most `size` threads, started as they are needed."""

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        self._work: SimpleQueue[_Work | None] = SimpleQueue()
        self._started = 0
        self._busy = 0

    async def call(self, function: Callable[[], object]) -> Any:
        """What the function returns or raises, in a thread, with the context variables of this task.

        Cancelled, this ends at once; a function that has begun goes on to its end, and nobody hears of it.
        """
        loop = asyncio.get_running_loop()
        work = _Work(function, copy_context(), loop, loop.create_future())
        self._busy += 1
        if self._busy > self._started and self._started < self._size:
            self._started += 1
            threading.Thread(target=self._serve, name=f"{self._name}-{self._started}", daemon=True).start()
        self._work.put(work)
        value, error = await work.done
        if error is not None:
            raise error
        return value

    def close(self) -> None:
        """End the threads that have nothing to do, and the others after what they do."""
        for _ in range(self._started):
            self._work.put(None)

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            value: object = None
            error: BaseException | None = None
            if not work.done.cancelled():
                try:
                    value = work.context.run(work.function)
                except BaseException as raised:  # raised again in the task that waits
                    error = raised
            # The loop may be gone: the worker has left without us.
            with contextlib.suppress(RuntimeError):
                work.loop.call_soon_threadsafe(self._finish, work, value, error)
            del work, value, error

    def _finish(self, work: _Work, value: object, error: BaseException | None) -> None:
        self._busy -= 1
        if not work.done.done():
            work.done.set_result((value, error))
