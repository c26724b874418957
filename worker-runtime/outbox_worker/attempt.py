"""One attempt at a message: through which door the listener is called, and for how long."""

import asyncio
import time
from typing import Any

from outbox.arguments import Delivery
from outbox.listener import Listener
from outbox_core.consumer import Received
from outbox_worker.call import Caller
from outbox_worker.delivery import delivery_of
from outbox_worker.errors import (
    HandlerCancelledError,
    HandlerExitError,
    HandlerTimeoutError,
    MessageIdMissingError,
)
from outbox_worker.metrics import Metrics
from outbox_worker.raw_message import raw_message
from outbox_worker.transactions import Transactions


class Attempts:
    """The attempts at the messages of one queue."""

    def __init__(
        self,
        listener: Listener[..., Any],
        caller: Caller,
        metrics: Metrics,
        transactions: Transactions | None,
        timeout_seconds: float | None,
    ) -> None:
        self._queue = listener.queue
        self._caller = caller
        self._metrics = metrics
        self._timeout_seconds = timeout_seconds
        self._wants_raw = "message" in listener.arguments.context
        self._wants_session = "session" in listener.arguments.context
        self._is_async = listener.is_async
        self._transactions = transactions
        self._running: dict[asyncio.Task[Any], float] = {}
        self._late: set[asyncio.Task[Any]] = set()
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
        late = [task for task, started in self._running.items() if started < before]
        fresh = [task for task in late if task not in self._late]
        for task in fresh:
            self._late.add(task)
            self._metrics.timed_out()
            task.cancel()
        return len(fresh)

    async def _plain(self, received: Received, attempt: int) -> bool:
        raw = raw_message(received) if self._wants_raw else None
        await self._call(delivery_of(received.message, self._queue, attempt, raw=raw))
        return True

    async def _exactly_once(self, received: Received, attempt: int) -> bool:
        message = received.message
        raw = raw_message(received) if self._wants_raw else None
        transactions, message_id = self._database(), self._message_id(received)
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
        return True

    async def _deduplicated(self, received: Received, attempt: int) -> bool:
        if await self._database().was_handled(self._queue, self._message_id(received)):
            return False
        return await self._plain(received, attempt)

    async def _call(self, delivery: Delivery) -> None:
        """Call the listener, as long as it may take."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine of ours runs in a task
        started = self._running[task] = time.perf_counter()
        try:
            await self._caller.call(delivery)
        except asyncio.CancelledError as error:
            if task in self._late:
                raise self._timed_out() from None
            if task.cancelling():
                raise
            raise HandlerCancelledError("the listener was cancelled from within") from error
        except SystemExit as error:
            raise HandlerExitError(f"the listener called for an exit with status {error.code}") from error
        finally:
            del self._running[task]
            self._metrics.took(time.perf_counter() - started)
            if task in self._late:
                self._late.discard(task)
                task.uncancel()

    def _timed_out(self) -> HandlerTimeoutError:
        limit = f"the listener took longer than handler_timeout, {self._timeout_seconds:g} s"
        if self._is_async:
            return HandlerTimeoutError(f"{limit}, and was cancelled")
        return HandlerTimeoutError(f"{limit}; its thread cannot be stopped and goes on")

    def _database(self) -> Transactions:
        assert self._transactions is not None  # noqa: S101 - a worker without a database refuses to start
        return self._transactions

    def _message_id(self, received: Received) -> str:
        if received.message.message_id is None:
            raise MessageIdMissingError(
                "the message has no message_id, by which a duplicate would be known; "
                "have its publisher set one"
            )
        return received.message.message_id
