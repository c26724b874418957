"""One attempt at a message: through which door the listener is called, and for how long."""

import asyncio
import time
from typing import Any

from outbox.arguments import Delivery
from outbox.listener import Listener
from outbox_core.publisher import Message
from outbox_worker.call import Caller, Clock
from outbox_worker.delivery import delivery_of
from outbox_worker.errors import (
    HandlerCancelledError,
    HandlerExitError,
    HandlerTimeoutError,
    MessageIdMissingError,
)
from outbox_worker.link import Held, LinkLostError
from outbox_worker.metrics import Metrics
from outbox_worker.raw_message import raw_message
from outbox_worker.threads import Threads
from outbox_worker.transactions import Transactions


class Attempts:
    """The attempts at the messages of one queue."""

    def __init__(
        self,
        listener: Listener[..., Any],
        caller: Caller,
        threads: Threads,
        *,
        metrics: Metrics,
        transactions: Transactions | None,
        timeout_seconds: float | None,
    ) -> None:
        self._queue = listener.queue
        self._caller = caller
        self._threads = threads
        self._metrics = metrics
        self._timeout_seconds = timeout_seconds
        self._wants_raw = "message" in listener.arguments.context
        self._wants_session = "session" in listener.arguments.context
        self._is_async = listener.is_async
        self._is_ordered = listener.ordered
        self._transactions = transactions
        self._running: dict[asyncio.Task[Any], Clock] = {}
        self._cancelled: dict[asyncio.Task[Any], Exception] = {}
        """The calls that were cancelled, and what each of them fails with."""
        if listener.exactly_once:
            self.make = self._exactly_once
        elif listener.deduplicate:
            self.make = self._deduplicated
        else:
            self.make = self._plain
        # One attempt: whether the listener was called; False for a message that had been handled before.

    def cancel_late(self) -> int:
        """Cancel the calls that take too long; tells how many. Called every now and then."""
        if self._timeout_seconds is None:
            return 0
        before = time.perf_counter() - self._timeout_seconds
        late = [
            task
            for task, clock in self._running.items()
            if clock.began is not None and clock.began < before and task not in self._cancelled
        ]
        for task in late:
            self._metrics.timed_out()
            self._cancel(task, self._timed_out())
        return len(late)

    def cancel_lost(self) -> None:
        """Cancel the calls of a consumer that was lost. A thread cannot be stopped: its call goes on."""
        if self._is_async:
            for task in self._running.keys() - self._cancelled.keys():
                self._cancel(task, LinkLostError("the listener was cancelled, as its connection was lost"))

    def _cancel(self, task: asyncio.Task[Any], error: Exception) -> None:
        self._cancelled[task] = error
        task.cancel()

    async def _plain(self, held: Held, attempt: int) -> bool:
        if not self._is_async:
            self._threads.check()
        raw = raw_message(held.received) if self._wants_raw else None
        await self._call(delivery_of(held.message, self._queue, attempt, raw=raw))
        return True

    async def _exactly_once(self, held: Held, attempt: int) -> bool:
        message = held.message
        raw = raw_message(held.received) if self._wants_raw else None
        transactions, message_id = self._database(), _message_id(message)
        async with transactions.begin(self._queue, message_id, session=self._wants_session) as entry:
            if entry.is_duplicate:
                return False
            await self._call(
                delivery_of(
                    message,
                    self._queue,
                    attempt,
                    raw=raw,
                    connection=entry.connection,
                    session=entry.session,
                )
            )
            if self._is_ordered and held.is_lost:
                # Another worker may be further by now: this effect would be out of order.
                raise LinkLostError("its effect is rolled back, as its connection was lost")
        return True

    async def _deduplicated(self, held: Held, attempt: int) -> bool:
        if await self._database().was_handled(self._queue, _message_id(held.message)):
            return False
        return await self._plain(held, attempt)

    async def _call(self, delivery: Delivery) -> None:
        """Call the listener, as long as it may take."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine of ours runs in a task
        clock = self._running[task] = Clock()
        try:
            await self._caller.call(delivery, clock)
        except asyncio.CancelledError as error:
            if task in self._cancelled:
                raise self._cancelled[task] from None
            if task.cancelling():
                raise
            raise HandlerCancelledError from error
        except SystemExit as error:
            raise HandlerExitError(error.code) from error
        finally:
            del self._running[task]
            if clock.began is not None:
                self._metrics.took(time.perf_counter() - clock.began)
            if self._cancelled.pop(task, None) is not None:
                task.uncancel()

    def _timed_out(self) -> HandlerTimeoutError:
        limit = f"the listener took longer than handler_timeout, {self._timeout_seconds:g} s"
        if self._is_async:
            return HandlerTimeoutError(f"{limit}, and was cancelled")
        return HandlerTimeoutError(f"{limit}; its thread cannot be stopped and goes on")

    def _database(self) -> Transactions:
        assert self._transactions is not None  # noqa: S101 - a worker without a database refuses to start
        return self._transactions


def _message_id(message: Message) -> str:
    if message.message_id is None:
        raise MessageIdMissingError(
            "the message has no message_id, by which a duplicate would be known; have its publisher set one"
        )
    return message.message_id
