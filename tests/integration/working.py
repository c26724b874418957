"""Workers at work: an exchange, listeners that keep a ledger, and what is left in the queues."""

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractExchange, AbstractIncomingMessage
from prometheus_client import REGISTRY

from outbox import Listener, Worker
from outbox.topology import dead_letter_queue
from tests.integration.relaying import DEADLINE_SECONDS, until

__all__ = ["DEADLINE_SECONDS", "Calls", "Running", "Workshop", "until", "workshop_at"]


@dataclass
class Calls:
    """A listener's ledger: what it was called with, in that order."""

    bodies: list[Any] = field(default_factory=list)
    attempts: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    def note(self, body: Any, attempt: int = 1) -> None:
        self.bodies.append(body)
        self.attempts.append(attempt)
        self.times.append(asyncio.get_running_loop().time())

    def __len__(self) -> int:
        return len(self.bodies)


@dataclass
class Running:
    """A worker in a task of its own."""

    worker: Worker
    stopping: asyncio.Event
    task: asyncio.Task[None]

    async def stop(self) -> None:
        """Ask it to stop, and wait until it has; raises what it failed with."""
        self.stopping.set()
        async with asyncio.timeout(DEADLINE_SECONDS):
            await self.task


class Workshop:
    """One exchange on a broker, with the workers that listen to it."""

    def __init__(self, rabbitmq_url: str, channel: AbstractChannel) -> None:
        self.rabbitmq_url = rabbitmq_url
        self.channel = channel
        # Of its own for each test, so that metrics with this label are of this test only.
        self.exchange_name = f"outbox-{uuid.uuid4().hex[:8]}"
        self._running: list[Running] = []

    def queue(self, name: str = "queue") -> str:
        """A queue's name of this test."""
        return f"{self.exchange_name}.{name}"

    # -- workers

    def worker(self, *listeners: Listener[..., Any], **options: Any) -> Worker:
        """A worker that is not running yet."""
        given = {"rmq_connection_url": self.rabbitmq_url, "exchange_name": self.exchange_name}
        if "rmq_connection" in options:
            del given["rmq_connection_url"]
        return Worker(listeners=listeners, **{**given, **options})

    def start(self, worker: Worker) -> Running:
        """Run a worker until it is stopped, or the test ends."""
        stopping = asyncio.Event()
        running = Running(worker, stopping, asyncio.create_task(worker.run_until(stopping)))
        self._running.append(running)
        return running

    async def working(self, *listeners: Listener[..., Any], **options: Any) -> Running:
        """A worker that consumes."""
        running = self.start(self.worker(*listeners, **options))
        await self.until_ready(running)
        return running

    async def until_ready(self, running: Running) -> None:
        await self.until(
            lambda: running.worker.unready_reason() is None,
            lambda: f"the worker to be ready: {running.worker.unready_reason()}",
        )

    async def until(
        self, condition: Callable[[], bool | Awaitable[bool]], what: str | Callable[[], str]
    ) -> None:
        """Poll until the condition holds; a worker that fails meanwhile fails the test with its own error."""

        async def holds() -> bool:
            for running in self._running:
                if running.task.done():
                    running.task.result()
            answer = condition()
            return answer if isinstance(answer, bool) else await answer

        await until(holds, what)

    async def until_called(self, calls: Calls, count: int) -> None:
        """Wait until a listener was called so often."""
        await self.until(
            lambda: len(calls) >= count, lambda: f"{count} calls, not {len(calls)}: {calls.bodies}"
        )

    # -- the broker's side

    async def exchange(self) -> AbstractExchange:
        """The exchange, also where no worker has declared it."""
        return await self.channel.declare_exchange(self.exchange_name, "topic", durable=True)

    async def publish(
        self,
        routing_key: str,
        body: Any,
        *,
        headers: Mapping[str, Any] | None = None,
        message_id: str | None = None,
        **properties: Any,
    ) -> str:
        """Publish as a relay would; tells the message's id."""
        message_id = message_id or str(uuid.uuid4())
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        message = aio_pika.Message(
            content,
            message_id=message_id,
            headers={**(headers or {})},
            delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
            **{"content_type": "application/json", **properties},
        )
        await (await self.exchange()).publish(message, routing_key)
        return message_id

    async def dead_letter(self, queue: str) -> AbstractIncomingMessage:
        """Wait for a dead letter of this queue, and take it."""
        found: AbstractIncomingMessage | None = None

        async def holds() -> bool:
            nonlocal found
            dlq = await self.channel.get_queue(dead_letter_queue(queue), ensure=False)
            found = await dlq.get(fail=False, no_ack=True)
            return found is not None

        await self.until(holds, f"a dead letter of {queue}")
        assert found is not None
        return found

    async def depth(self, queue: str) -> int:
        """How many messages wait in a queue."""
        declared = await self.channel.declare_queue(queue, passive=True)
        return declared.declaration_result.message_count or 0

    async def until_unconsumed(self, queue: str) -> None:
        """Wait until nobody consumes a queue any more."""

        async def holds() -> bool:
            declared = await self.channel.declare_queue(queue, passive=True)
            return declared.declaration_result.consumer_count == 0

        await self.until(holds, f"{queue} to have no consumer")

    async def until_depth(self, queue: str, count: int) -> None:
        """Wait until so many messages wait in a queue."""

        async def holds() -> bool:
            return await self.depth(queue) == count

        await self.until(holds, f"{count} messages in {queue}")

    async def until_empty(self, queue: str) -> None:
        """Wait until nothing waits in a queue, nor is under way to a listener."""

        async def holds() -> bool:
            return await self.depth(queue) == 0 and self.metric("outbox_messages_in_flight", queue) == 0

        await self.until(holds, f"{queue} to be empty")

    def metric(self, name: str, queue: str, **labels: str) -> float:
        """The value of a metric of this exchange, 0 where it was never touched."""
        given = {"queue": queue, "exchange_name": self.exchange_name, **labels}
        return REGISTRY.get_sample_value(name, given) or 0.0

    async def until_metric(self, at_least: float, name: str, queue: str, **labels: str) -> None:
        """Wait until so many are counted."""
        await self.until(
            lambda: self.metric(name, queue, **labels) >= at_least, f"{name} {labels} to be {at_least:g}"
        )

    async def stop_all(self) -> None:
        for running in self._running:
            if not running.task.done():
                await running.stop()


@contextlib.asynccontextmanager
async def workshop_at(rabbitmq_url: str) -> AsyncIterator[Workshop]:
    """A fresh exchange name; what is running when the block ends is stopped."""
    connection = await aio_pika.connect(rabbitmq_url)
    channel = await connection.channel()
    workshop = Workshop(rabbitmq_url, channel)
    try:
        yield workshop
    finally:
        await workshop.stop_all()
        await connection.close()
