"""The consumer of a chaos test: it keeps the ledger of what arrives."""

import asyncio
import time
from contextlib import suppress
from uuid import UUID, uuid4

import aio_pika
from aio_pika.abc import AbstractIncomingMessage

from tests.chaos.ledger import Arrival, Ledger
from tests.chaos.waiting import eventually

_ACK_SECONDS = 0.05
_PREFETCH = 1000


class Consumer:
    """Acknowledges into the ledger what a queue delivers, and comes back when the broker does."""

    def __init__(self, url: str, queue: str, ledger: Ledger) -> None:
        self._url = url
        self._queue = queue
        self._ledger = ledger
        self._markers: dict[str, asyncio.Event] = {}
        self._last: AbstractIncomingMessage | None = None
        """What was taken and not acknowledged yet, with all before it."""

    async def run(self) -> None:
        while True:
            with suppress(OSError, RuntimeError, aio_pika.exceptions.AMQPError):
                await self._consume()
            await asyncio.sleep(0.1)

    async def flush(self) -> None:
        """Wait until the queue has delivered all that it holds now."""
        marker = str(uuid4())
        seen = self._markers[marker] = asyncio.Event()
        message = aio_pika.Message(b"", message_id=marker, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        async with await aio_pika.connect(self._url) as connection:
            channel = await connection.channel()

            async def is_taken() -> bool:
                # A full queue refuses it.
                with suppress(aio_pika.exceptions.DeliveryError):
                    await channel.default_exchange.publish(message, self._queue)
                    return True
                return False

            await eventually(f"queue {self._queue} takes a message", is_taken)

        async def is_seen() -> bool:
            return seen.is_set()

        await eventually(f"queue {self._queue} has delivered everything", is_seen)

    async def _consume(self) -> None:
        closed = asyncio.Event()
        connection = await aio_pika.connect(self._url, timeout=5)
        try:
            connection.close_callbacks.add(lambda *_: closed.set())
            channel = await connection.channel()
            channel.close_callbacks.add(lambda *_: closed.set())
            await channel.set_qos(prefetch_count=_PREFETCH)
            queue = await channel.get_queue(self._queue)
            await queue.consume(self._take, timeout=10)
            while not closed.is_set():
                await asyncio.sleep(_ACK_SECONDS)
                await self._acknowledge()
        finally:
            self._last = None
            with suppress(OSError, RuntimeError, TimeoutError, aio_pika.exceptions.AMQPError):
                async with asyncio.timeout(5):
                    await connection.close()

    async def _take(self, message: AbstractIncomingMessage) -> None:
        known = message.message_id or ""
        if known in self._markers:
            self._markers[known].set()
        else:
            arrival = Arrival(UUID(known), self._queue, time.time(), bool(message.redelivered))
            self._ledger.note_arrival(arrival)
        self._last = message

    async def _acknowledge(self) -> None:
        last, self._last = self._last, None
        if last is not None:
            await last.ack(multiple=True)
