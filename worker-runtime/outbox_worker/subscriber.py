"""One queue's consumer, kept alive, and the tasks that handle what it delivers."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from outbox_core.backoff import Backoff
from outbox_core.broker import Broker
from outbox_core.broker_errors import BrokerLostError
from outbox_core.consumer import Consumer, Received
from outbox_worker.holding import HoldLimit
from outbox_worker.link import Link, Pause, returns_of
from outbox_worker.metrics import Metrics

_log = logging.getLogger("outbox.worker")

_AGAIN = Backoff(0.1, 1.0)
_LONG_SECONDS = 1.0
"""A consumer that lived for this long was no failure."""
_CANCELLED_SECONDS = 1.0
"""How long a listener that was cancelled may take to end."""


class Subscriber:
    """Consumes one queue until it is stopped; an outage ends the consumer, and another one follows."""

    def __init__(
        self,
        *,
        queue: str,
        prefetch_count: int,
        keeps_order: bool,
        broker: Broker,
        handle: Callable[[Link, Received], Coroutine[Any, Any, None]],
        cancel_lost: Callable[[], None],
        repair: Callable[[], Awaitable[None]] | None,
        hold_limit: HoldLimit,
        metrics: Metrics,
        stopping: asyncio.Event,
    ) -> None:
        """`repair` declares the queue where it is missing; None where that is for somebody else to do.
        `cancel_lost` cancels the calls that run when the consumer of an ordered queue is lost."""
        self._queue = queue
        # In order, one at a time: what is delivered behind a message that kills its consumer would be counted
        # as delivered, and in the end be dead-lettered with it.
        self._prefetch_count = 1 if keeps_order else prefetch_count
        self._keeps_order = keeps_order
        self._broker = broker
        self._handle = handle
        self._cancel_lost = cancel_lost
        self._repair = repair
        self._hold_limit = hold_limit
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._link = Link()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = stopping
        self.problem: str | None = "not consuming yet"
        """Why nothing is consumed; None where it is."""
        metrics.in_flight(self._tasks.__len__)

    async def run(self) -> None:
        """Consume until cancelled."""
        failures = 0
        is_first = True
        while True:
            await self._broker.wait_ready()
            opened = time.monotonic()
            try:
                # The first time the worker has declared everything.
                if self._repair is not None and not is_first:
                    await self._repair()
                is_first = False
                consumer = await self._open()
            except BrokerLostError as error:
                self._lost(error, failures)
            else:
                match await self._end_of(consumer):
                    case Pause() as pause:
                        await self._pause(consumer, pause)
                        continue
                    case lost:
                        self._lost(lost, 0)
                        if self._keeps_order:
                            await self._end_calls()
                        await consumer.aclose()
            failures = 1 if time.monotonic() - opened > _LONG_SECONDS else failures + 1
            await asyncio.sleep(_AGAIN.delay(failures))

    async def stop(self) -> None:
        """Take no more; what comes nevertheless is given back."""
        consumer = self._link.consumer
        # To be cancelled would let the next worker begin while we are not done with a message before.
        if consumer is not None and not self._link.is_lost and not self._keeps_order:
            await consumer.stop()
        self._link.is_stopped.set()

    async def finish(self, timeout_seconds: float) -> None:
        """Wait for the listeners that run, and cancel those that take longer than this."""
        if not self._tasks:
            return
        losing = asyncio.create_task(self._cancel_when_lost())
        try:
            _, late = await asyncio.wait(self._tasks, timeout=timeout_seconds)
        finally:
            losing.cancel()
        if late:
            _log.warning(
                "%d listeners of queue %s did not finish in time; their messages are given back",
                len(late),
                self._queue,
            )

    async def leave(self) -> None:
        """End what still runs, and the consumer: the broker gives to others what is not settled."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_CANCELLED_SECONDS)
        consumer, self._link.is_lost = self._link.consumer, True
        if consumer is not None:
            await consumer.aclose()
        self._metrics.consuming(False)
        self._metrics.in_flight(lambda: 0)

    async def _open(self) -> Consumer:
        link = self._link = Link(keeps_order=self._keeps_order)
        consumer = await self._broker.consumer(
            self._queue, self._prefetch_count, partial(self._receive, link)
        )
        link.consumer = consumer
        self.problem = None
        self._metrics.consuming(True)
        _log.debug("consuming queue %s, %d at a time", self._queue, self._prefetch_count)
        return consumer

    def _receive(self, link: Link, received: Received) -> None:
        if link.is_lost or (self._stopping.is_set() and self._may_return(received)):
            link.give_back(received)
            return
        self._metrics.received()
        task = self._loop.create_task(self._handle(link, received), name=self._queue)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _may_return(self, received: Received) -> bool:
        """False for a message that was returned often: it is handled, or given back by a delay tier."""
        return self._hold_limit.may_return(returns_of(received.message))

    async def _end_of(self, consumer: Consumer) -> BrokerLostError | Pause:
        """Wait until the consumer is lost, or is to be ended by us."""
        pausing = asyncio.create_task(self._link.pausing.wait())
        error = await _lost_before(consumer, pausing)
        if error is not None:
            return error
        assert self._link.pause is not None  # noqa: S101 - set together with the event
        return self._link.pause

    async def _pause(self, consumer: Consumer, pause: Pause) -> None:
        """End the consumer, so that its messages wait in their queue, until the pause has ended.

        What runs may finish; what waits is given back, and counted as returned once.
        """
        self._metrics.consuming(False)
        self.problem = pause.reason
        _log.warning("queue %s is not consumed until this has ended: %s", self._queue, pause.reason)
        if not self._keeps_order:
            await consumer.stop()
        self._link.is_stopped.set()
        if self._tasks:
            await _lost_before(consumer, asyncio.create_task(asyncio.wait(self._tasks)))
        self._link.is_lost = True
        await consumer.aclose()
        await pause.ended()
        _log.info("queue %s is consumed again", self._queue)

    async def _end_calls(self) -> None:
        """End the call of a consumer that was lost, as another worker may handle its message by now."""
        self._cancel_lost()
        if self._tasks:
            self.problem = f"{self.problem}; waiting for a call of before to end"
            await asyncio.wait(self._tasks)

    async def _cancel_when_lost(self) -> None:
        """As while consuming: what is not settled is another worker's once the consumer is lost."""
        if self._link.consumer is None or self._link.is_lost:
            return
        self._lost(await self._link.consumer.wait_lost(), 0)
        if self._keeps_order:
            self._cancel_lost()

    def _lost(self, error: BrokerLostError, failures: int) -> None:
        self._link.is_lost = True
        self._link.is_stopped.set()
        self._metrics.consuming(False)
        if (timeout_seconds := self._hold_limit.learn(str(error))) is not None:
            _log.warning(
                "the broker lets no message of queue %s be unanswered for %g s; set consumer_timeout to that",
                self._queue,
                timeout_seconds,
            )
        if str(error) != self.problem:
            _log.log(
                logging.WARNING if failures == 0 else logging.DEBUG,
                "queue %s is not consumed for now: %s",
                self._queue,
                error,
            )
        self.problem = str(error)


async def _lost_before(consumer: Consumer, other: asyncio.Task[Any]) -> BrokerLostError | None:
    """Wait until the consumer is lost, or the other task has ended, which is ended in any case."""
    lost = asyncio.create_task(consumer.wait_lost())
    try:
        await asyncio.wait([lost, other], return_when=asyncio.FIRST_COMPLETED)
        return lost.result() if lost.done() else None
    finally:
        lost.cancel()
        other.cancel()
