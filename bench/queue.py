"""The queue of the measurements: filled, counted and emptied."""

import asyncio
import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from bench.tally import body_of
from outbox.topology import Subscription, topology
from outbox.wire import ATTEMPT, ROUTING_KEY, TRACKING_IDS
from outbox_core.broker import Broker
from outbox_core.publisher import Message

EXCHANGE = "outbox"
NAME = "bench"
TOPIC = "bench.message"

_DELAYS = tuple(timedelta(seconds=seconds) for seconds in (1, 10, 60, 300))
_BATCH = 1_000
_SAMPLE_SECONDS = 0.02
_PATIENCE_SECONDS = 60.0
"""How long nothing may happen before a measurement is given up."""


class Queue:
    """A quorum queue that is bound for everything, with all that a worker's queue has."""

    def __init__(self, broker_url: str, channel: Any) -> None:
        self._broker_url = broker_url
        self._channel = channel

    async def clear(self) -> None:
        """Make it anew."""
        await self._channel.queue_delete(NAME)
        async with Broker(self._broker_url, name="bench") as broker:
            await broker.declare(topology(EXCHANGE, [Subscription(NAME, ("#",), _DELAYS)]))

    async def publish(self, count: int) -> None:
        """Put so many messages into it, as the relay would."""
        headers = {TRACKING_IDS: "[]", ROUTING_KEY: TOPIC, ATTEMPT: 1}
        async with Broker(self._broker_url, name="bench") as broker:
            publisher = await broker.publisher()
            for first in range(0, count, _BATCH):
                numbers = range(first, min(first + _BATCH, count))
                messages = [
                    Message(TOPIC, body_of(number), str(uuid.uuid4()), int(time.time()), headers=headers)
                    for number in numbers
                ]
                await publisher.publish(EXCHANGE, messages, timeout=30)
            await publisher.aclose()

    async def drop(self) -> None:
        """Throw away what waits in it."""
        queue = await self._channel.declare_queue(NAME, passive=True)
        await queue.purge()

    async def waiting(self) -> int:
        """How many messages wait in it."""
        return int((await self._declared()).message_count)

    async def consumers(self) -> int:
        """How many consumers it has."""
        return int((await self._declared()).consumer_count)

    async def arrival_of(self, count: int, sample: Callable[[int], None] | None = None) -> None:
        """Wait until so many messages are in the queue."""
        most = 0
        progressed = next_line = time.monotonic()
        while (arrived := await self.waiting()) < count:
            now = time.monotonic()
            if arrived > most:
                most, progressed = arrived, now
            if sample is not None:
                sample(arrived)
            if now > next_line + 10:
                print(f"      {arrived:,} of {count:,} …", flush=True)
                next_line = now
            if now > progressed + _PATIENCE_SECONDS:
                raise TimeoutError(f"{arrived} of {count} messages arrived, and then none for a while")
            await asyncio.sleep(_SAMPLE_SECONDS)

    async def emptied(self) -> None:
        """Wait until nothing waits in it."""
        least, progressed = await self.waiting(), time.monotonic()
        while waiting := await self.waiting():
            if waiting < least:
                least, progressed = waiting, time.monotonic()
            if time.monotonic() > progressed + _PATIENCE_SECONDS:
                raise TimeoutError(f"{waiting} messages wait, and nobody takes them")
            await asyncio.sleep(_SAMPLE_SECONDS)

    async def _declared(self) -> Any:
        queue = await self._channel.declare_queue(NAME, passive=True)
        return queue.declaration_result
