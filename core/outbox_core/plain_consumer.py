"""Consuming with nothing but the documented API of aio-pika and aiormq: slower, and on any connection."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime

from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractQueue
from aio_pika.exceptions import AMQPError

from outbox_core.broker_errors import BrokerLostError, closed_by_us, consumer_cancelled, lost_consumer
from outbox_core.consumer import ACKS_AT_ONCE, OnMessage, Received
from outbox_core.publisher import Message, RareProperties

_CALL_SECONDS = 10.0
_CLOSE_SECONDS = 5.0
_FAILURES = (AMQPError, RuntimeError, OSError)
_NOTHING_RARE = RareProperties()


class PlainConsumer:
    """A `Consumer` on an aio-pika channel that nobody else uses."""

    def __init__(self, channel: AbstractChannel, queue: str, on_message: OnMessage) -> None:
        loop = asyncio.get_running_loop()
        self._channel = channel
        self._name = queue
        self._on_message = on_message
        self._queue: AbstractQueue | None = None
        self._consumer_tag = ""
        self._unsettled: dict[int, tuple[Received, AbstractIncomingMessage]] = {}
        self._held = 0
        self._settlements: deque[Callable[[], Awaitable[None]]] = deque()
        self._settling: asyncio.Task[None] | None = None
        self._is_stopped = False
        self._acks_may_wait = True
        self._is_gone = False
        """Nothing can be settled any more."""
        self._started: asyncio.Future[None] = loop.create_future()
        self._lost: asyncio.Future[BrokerLostError] = loop.create_future()
        channel.close_callbacks.add(self._on_closed)

    @property
    def is_usable(self) -> bool:
        """See `Consumer.is_usable`."""
        return not (self._is_stopped or self._is_gone or self._lost.done() or self._channel.is_closed)

    @property
    def unsettled(self) -> int:
        """See `Consumer.unsettled`."""
        return len(self._unsettled) + self._held

    async def start(self, prefetch_count: int) -> None:
        """Begin to consume, or raise why not; deliveries come after this has returned."""
        self._acks_may_wait = prefetch_count > ACKS_AT_ONCE
        try:
            async with asyncio.timeout(_CALL_SECONDS):
                await self._channel.set_qos(prefetch_count=prefetch_count)
                underlay = await self._channel.get_underlay_channel()
                underlay.on_consumer_cancel_callbacks.add(
                    lambda _: self._lose(consumer_cancelled(self._name))
                )
                self._queue = await self._channel.get_queue(self._name, ensure=False)
                self._consumer_tag = await self._queue.consume(self._on_delivery)
        except _FAILURES as error:
            raise lost_consumer(error, self._name) from None
        asyncio.get_running_loop().call_soon(self._started.set_result, None)

    def ack(self, received: Received) -> bool:
        """See `Consumer.ack`."""
        incoming = self._settled(received)
        return incoming is not None and self._settle(incoming.ack)

    def requeue(self, received: Received) -> bool:
        """See `Consumer.requeue`."""
        incoming = self._settled(received)
        return incoming is not None and self._settle(lambda: incoming.nack(requeue=True))

    def dead_letter(self, received: Received) -> bool:
        """See `Consumer.dead_letter`."""
        incoming = self._settled(received)
        return incoming is not None and self._settle(lambda: incoming.nack(requeue=False))

    def hold(self, received: Received) -> bool:
        """See `Consumer.hold`."""
        if self._settled(received) is None:
            return False
        self._held += 1
        return True

    async def wait_lost(self) -> BrokerLostError:
        """See `Consumer.wait_lost`."""
        return await asyncio.shield(self._lost)

    async def stop(self) -> None:
        """See `Consumer.stop`."""
        if not self.is_usable or self._queue is None:
            return
        self._is_stopped = True
        try:
            await self._queue.cancel(self._consumer_tag, timeout=_CALL_SECONDS)
        except _FAILURES as error:
            self._go(lost_consumer(error, self._name))
        except asyncio.CancelledError as error:
            # aiormq closes a channel whose call was cancelled.
            self._go(lost_consumer(error, self._name))
            raise

    async def aclose(self) -> None:
        """See `Consumer.aclose`."""
        queue = self._queue if self.is_usable and self._acks_may_wait else None
        self._go(closed_by_us(self._name))
        with suppress(*_FAILURES):
            async with asyncio.timeout(_CLOSE_SECONDS):
                if self._settling:
                    await self._settling
                if queue and self._consumer_tag:
                    # As in `BatchConsumer.aclose`.
                    await queue.cancel(self._consumer_tag)
                await self._channel.close()

    async def _on_delivery(self, incoming: AbstractIncomingMessage) -> None:
        await self._started
        if self._is_gone:
            return
        received = _received(incoming)
        self._unsettled[received.tag] = received, incoming
        self._on_message(received)

    def _settled(self, received: Received) -> AbstractIncomingMessage | None:
        """What was delivered, where it is to be settled now and never was."""
        known, incoming = self._unsettled.get(received.tag, (None, None))
        if self._is_gone or known is not received:
            return None
        del self._unsettled[received.tag]
        return incoming

    def _settle(self, settlement: Callable[[], Awaitable[None]]) -> bool:
        self._settlements.append(settlement)
        if self._settling is None:
            self._settling = asyncio.create_task(self._write_settlements())
        return True

    async def _write_settlements(self) -> None:
        # Where the channel is gone, what is not written comes again.
        with suppress(*_FAILURES):
            while self._settlements:
                await self._settlements.popleft()()
        self._settling = None

    def _on_cancelled(self, _: object) -> None:
        self._lose(consumer_cancelled(self._name))

    def _on_closed(self, _: object, cause: BaseException | None) -> None:
        self._go(lost_consumer(cause, self._name))

    def _go(self, error: BrokerLostError) -> None:
        self._is_gone = True
        self._lose(error)

    def _lose(self, error: BrokerLostError) -> None:
        if not self._lost.done():
            self._lost.set_result(error)


def _received(incoming: AbstractIncomingMessage) -> Received:
    rare = RareProperties(
        content_encoding=incoming.content_encoding,
        # aio-pika has 0 for a priority and "" for a cluster id that are not there.
        priority=incoming.priority or None,
        correlation_id=incoming.correlation_id,
        reply_to=incoming.reply_to,
        type=incoming.type,
        app_id=incoming.app_id,
        cluster_id=incoming.cluster_id or None,
        user_id=incoming.user_id,
        delivery_mode=incoming.delivery_mode,
    )
    expiration, timestamp = incoming.expiration, incoming.timestamp
    message = Message(
        routing_key=incoming.routing_key or "",
        body=incoming.body,
        message_id=incoming.message_id,
        timestamp=int(timestamp.timestamp()) if isinstance(timestamp, datetime) else None,
        content_type=incoming.content_type,
        headers=incoming.headers,
        expiration_ms=round(expiration * 1000) if isinstance(expiration, int | float) else None,
        rare=None if rare == _NOTHING_RARE else rare,
    )
    return Received(message, incoming.delivery_tag or 0, incoming.exchange or "", bool(incoming.redelivered))
