"""Threads for listeners that are not async.

Not a `ThreadPoolExecutor`: the interpreter waits for its threads before it exits, and a listener that never
returns would keep a worker from leaving.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from outbox_worker.errors import NoThreadError


@dataclass(slots=True)
class _Work:
    function: Callable[[], object]
    begun: Callable[[], None]
    context: Context
    loop: asyncio.AbstractEventLoop
    done: "asyncio.Future[tuple[object, BaseException | None]]"
    token: threading.Lock = field(default_factory=threading.Lock)
    """Taken for good by the thread that begins the function, or by the task that gives it up before."""
    is_finished: bool = False
    is_abandoned: bool = False


class Threads:
    """At most `size` threads that somebody waits for, started as they are needed.

    A thread whose call was given up cannot be stopped. It is abandoned: it ends with its function, and
    another one takes its place, as long as there are at most `most_abandoned` of them.
    """

    def __init__(self, size: int, name: str, most_abandoned: int | None = None) -> None:
        """`most_abandoned` is `size` by default."""
        self._size = size
        self._name = name
        self._most_abandoned = size if most_abandoned is None else most_abandoned
        self._work: SimpleQueue[_Work | None] = SimpleQueue()
        self._started = 0
        self._number = 0
        self._busy = 0
        self._abandoned = 0
        self._available = asyncio.Event()
        self._available.set()

    @property
    def problem(self) -> str | None:
        """What is wrong while calls that were given up still run."""
        if self._abandoned == 0:
            return None
        return (
            f"queue {self._name}: {self._abandoned} calls that timed out still run, in threads that cannot "
            f"be stopped; at {self._most_abandoned} no further message is handled"
        )

    def check(self) -> None:
        """Raise a `NoThreadError` if so many threads are abandoned that another call might never begin."""
        if not self._available.is_set():
            raise NoThreadError(self.problem or "")

    async def wait_available(self) -> None:
        """Wait until `check` does not raise."""
        await self._available.wait()

    async def call(self, function: Callable[[], object], begun: Callable[[], None] = lambda: None) -> Any:
        """What the function returns or raises, in a thread, with the context variables of this task.

        `begun` is called in the loop when a thread has begun it. Cancelled, this ends at once; a function
        that has begun goes on to its end, and its result is dropped.
        """
        loop = asyncio.get_running_loop()
        work = _Work(function, begun, copy_context(), loop, loop.create_future())
        self._busy += 1
        self._work.put(work)
        self._grow()
        try:
            value, error = await work.done
        except asyncio.CancelledError:
            if not work.token.acquire(blocking=False) and not work.is_finished:
                self._abandon(work)
            raise
        if error is not None:
            raise error
        return value

    def close(self) -> None:
        """End the threads that have nothing to do, and the others after what they do."""
        for _ in range(self._started):
            self._work.put(None)

    @property
    def _allowed(self) -> int:
        return self._size + min(self._abandoned, self._most_abandoned)

    def _grow(self) -> None:
        if self._busy > self._started and self._started < self._allowed:
            self._started += 1
            self._number += 1
            threading.Thread(target=self._serve, name=f"{self._name}-{self._number}", daemon=True).start()

    def _abandon(self, work: _Work) -> None:
        work.is_abandoned = True
        self._abandoned += 1
        if self._abandoned >= self._most_abandoned:
            self._available.clear()
        self._grow()

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            value: object = None
            error: BaseException | None = None
            if work.token.acquire(blocking=False):
                self._tell(work, self._begin, work)
                try:
                    value = work.context.run(work.function)
                except BaseException as raised:  # raised again in the task that waits
                    error = raised
            self._tell(work, self._finish, work, value, error)
            del work, value, error

    def _tell(self, work: _Work, callback: Callable[..., None], *arguments: object) -> None:
        # The loop may be gone: the worker has left without us.
        with contextlib.suppress(RuntimeError):
            work.loop.call_soon_threadsafe(callback, *arguments)

    def _begin(self, work: _Work) -> None:
        if not work.done.done():
            work.begun()

    def _finish(self, work: _Work, value: object, error: BaseException | None) -> None:
        self._busy -= 1
        work.is_finished = True
        if work.is_abandoned:
            self._abandoned -= 1
            if self._abandoned < self._most_abandoned:
                self._available.set()
        if self._started > self._allowed:
            self._started -= 1
            self._work.put(None)
        if not work.done.done():
            work.done.set_result((value, error))
