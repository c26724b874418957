"""Calling a listener: arguments, tracking ids, middleware, and a thread where it is not async."""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from outbox.arguments import Delivery, described
from outbox.history import tracking
from outbox.listener import Listener
from outbox_worker.errors import NotAwaitedError
from outbox_worker.threads import Threads

Around: TypeAlias = Callable[[Callable[[], Awaitable[Any]], Delivery], Awaitable[Any]]
"""`async def around(call, message): return await call()`, with whatever is to happen before and after it."""


class Caller:
    """How one listener is called."""

    def __init__(self, listener: Listener[..., Any], middleware: Sequence[Around], threads: Threads) -> None:
        """The first of `middleware` is the outermost."""
        self._callback = listener.callback
        self._resolve = listener.arguments.resolve
        self._inwards = tuple(reversed(middleware))
        self._threads = threads
        self._invoke = self._awaited if listener.is_async else self._threaded

    async def call(self, delivery: Delivery) -> None:
        """Call the listener; raises what it raises, or a `BodyError`."""
        with tracking(delivery.tracking_ids):
            if not self._inwards:
                await self._invoke(delivery)
                return
            call: Callable[[], Awaitable[Any]] = partial(self._invoke, delivery)
            for around in self._inwards:
                call = partial(around, call, delivery)
            await call()

    async def _awaited(self, delivery: Delivery) -> Any:
        return await self._callback(**self._resolve(delivery))

    async def _threaded(self, delivery: Delivery) -> Any:
        return await self._threads.call(partial(self._plain, delivery))

    def _plain(self, delivery: Delivery) -> Any:
        result = self._callback(**self._resolve(delivery))
        if inspect.isawaitable(result):
            if inspect.iscoroutine(result):
                result.close()
            # To ack it would lose the message without a word.
            raise NotAwaitedError(
                f"{described(self._callback)} is not async, but returned something to await; "
                "write `async def`, or run it to its end"
            )
        return result
