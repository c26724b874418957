"""Calling a listener: arguments, tracking ids, middleware, and a thread where it is not async."""

import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from outbox.arguments import Delivery
from outbox.history import tracking
from outbox.listener import Listener, check_finished
from outbox_worker.errors import NotAwaitedError
from outbox_worker.threads import Threads

Around: TypeAlias = Callable[[Callable[[], Awaitable[Any]], Delivery], Awaitable[Any]]
"""`async def around(call, message): return await call()`, with whatever is to happen before and after it."""


class Clock:
    """How long a call has taken, but for the time in which it waited for a thread."""

    __slots__ = ("began",)

    def __init__(self) -> None:
        self.began: float | None = None
        """By `time.perf_counter`; None while it stands."""
        self.start()

    def start(self) -> None:
        """Begin anew."""
        self.began = time.perf_counter()

    def stop(self) -> None:
        """Stand until the next start."""
        self.began = None


class Caller:
    """How one listener is called."""

    def __init__(self, listener: Listener[..., Any], middleware: Sequence[Around], threads: Threads) -> None:
        """The first of `middleware` is the outermost."""
        self._callback = listener.callback
        self._resolve = listener.arguments.resolve
        self._inwards = tuple(reversed(middleware))
        self._threads = threads
        self._invoke = self._awaited if listener.is_async else self._threaded

    async def call(self, delivery: Delivery, clock: Clock) -> None:
        """Call the listener; raises what it raises, or a `BodyError`. The clock stands while it waits."""
        with tracking(delivery.tracking_ids):
            if not self._inwards:
                await self._invoke(delivery, clock)
                return
            call: Callable[[], Awaitable[Any]] = partial(self._invoke, delivery, clock)
            for around in self._inwards:
                call = partial(around, call, delivery)
            await call()

    async def _awaited(self, delivery: Delivery, _: Clock) -> Any:
        result = await self._callback(**self._resolve(delivery))
        self._check(result)
        return result

    async def _threaded(self, delivery: Delivery, clock: Clock) -> Any:
        clock.stop()
        return await self._threads.call(partial(self._plain, delivery), clock.start)

    def _plain(self, delivery: Delivery) -> Any:
        result = self._callback(**self._resolve(delivery))
        self._check(result)
        return result

    def _check(self, result: object) -> None:
        check_finished(self._callback, result, NotAwaitedError)  # an ack would lose the message silently
