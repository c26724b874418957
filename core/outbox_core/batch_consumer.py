"""Consuming from the frames themselves: all that have arrived at once, answered in one write a turn."""

import asyncio
import logging
import time
from collections import deque
from contextlib import suppress

from aiormq.abc import AbstractChannel
from aiormq.exceptions import AMQPError

from outbox_core import aiormq_internals
from outbox_core.acks import Acks, Settlement, Verdict
from outbox_core.broker_errors import BrokerLostError, closed_by_us, consumer_cancelled, lost_consumer
from outbox_core.consumer import ACKS_AT_ONCE, OnMessage, OnUnreadable, Received
from outbox_core.contents import DELIVER, Contents
from outbox_core.deliveries import received_of, tag_of
from outbox_core.frames import ack_frame, nack_frame
from outbox_core.header_tables import DecodingError

_log = logging.getLogger("outbox.broker")

_CALL_SECONDS = 10.0
_CLOSE_SECONDS = 5.0
_FAILURES = (AMQPError, RuntimeError, OSError)


class BatchConsumer:
    """A `Consumer` on an aiormq channel of an `OwnConnection` that nobody else uses."""

    def __init__(
        self,
        channel: AbstractChannel,
        queue: str,
        on_message: OnMessage,
        on_unreadable: OnUnreadable | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._channel = channel
        self._queue = queue
        self._on_message = on_message
        self._on_unreadable = on_unreadable
        self._consumer_tag = ""
        self._acks = Acks()
        self._early: deque[Received] | None = deque()
        """What came before `start` had returned; None when all of it is handed out."""
        self._is_flushing = False
        self._is_stopped = False
        self._acks_may_wait = True
        self._is_gone = False
        """Nothing may be written on the channel any more."""
        self._lost: asyncio.Future[BrokerLostError] = self._loop.create_future()
        self.take = Contents(DELIVER, self._on_content).take
        """Takes a frame of the channel from the connection's reader; False where it is none of a delivery."""
        aiormq_internals.attach(channel, self)
        channel.on_consumer_cancel_callbacks.add(self._on_cancelled)
        channel.closing.add_done_callback(self._on_closed)

    @property
    def is_usable(self) -> bool:
        """See `Consumer.is_usable`."""
        return not (self._is_stopped or self._is_gone or self._lost.done())

    @property
    def unsettled(self) -> int:
        """See `Consumer.unsettled`."""
        return self._acks.unsettled

    async def start(self, prefetch_count: int) -> None:
        """Begin to consume, or raise why not; deliveries come after this has returned."""
        self._acks_may_wait = prefetch_count > ACKS_AT_ONCE
        try:
            await self._channel.basic_qos(prefetch_count=prefetch_count, timeout=_CALL_SECONDS)
            consuming = await self._channel.basic_consume(self._queue, _unused, timeout=_CALL_SECONDS)
        except _FAILURES as error:
            raise lost_consumer(error, self._queue) from None
        self._consumer_tag = consuming.consumer_tag or ""
        self._loop.call_soon(self._hand_out_early)

    def ack(self, received: Received) -> bool:
        """See `Consumer.ack`."""
        return self._settle(received, Verdict.ACK)

    def requeue(self, received: Received) -> bool:
        """See `Consumer.requeue`."""
        return self._settle(received, Verdict.REQUEUE)

    def dead_letter(self, received: Received) -> bool:
        """See `Consumer.dead_letter`."""
        return self._settle(received, Verdict.DEAD_LETTER)

    def hold(self, received: Received) -> bool:
        """See `Consumer.hold`."""
        return not self._is_gone and self._acks.hold(received.tag, received)

    async def wait_lost(self) -> BrokerLostError:
        """See `Consumer.wait_lost`."""
        return await asyncio.shield(self._lost)

    async def stop(self) -> None:
        """See `Consumer.stop`."""
        if not self.is_usable:
            return
        self._is_stopped = True
        try:
            await self._channel.basic_cancel(self._consumer_tag, timeout=_CALL_SECONDS)
        except _FAILURES as error:
            self._go(lost_consumer(error, self._queue))
        except asyncio.CancelledError as error:
            # aiormq closes a channel whose call was cancelled.
            self._go(lost_consumer(error, self._queue))
            raise

    async def aclose(self) -> None:
        """See `Consumer.aclose`."""
        self._flush()
        is_consuming = self.is_usable and self._consumer_tag
        self._go(closed_by_us(self._queue))
        # RabbitMQ forgets acks of a quorum queue which wait behind 32 others when the channel closes, and
        # delivers again. A consumer is cancelled when those are applied, and what waits is on its way. Where
        # the order counts it must not be: the next consumer would begin behind what we have not settled.
        if is_consuming and self._acks_may_wait:
            with suppress(*_FAILURES):
                await self._channel.basic_cancel(self._consumer_tag, timeout=_CLOSE_SECONDS)
        await aiormq_internals.close_within(self._channel, _CLOSE_SECONDS)

    def end(self) -> None:
        """The broker closes the channel, or has: what is written on it now would cost the connection."""
        self._is_gone = True

    def _on_content(self, method: bytes, header: bytes, body: bytes) -> None:
        if self._is_gone:
            return
        try:
            received = received_of(method, header, body)
        except DecodingError as error:
            self._give_up(tag_of(method), error)
            return
        self._acks.deliver(received.tag, received)
        if self._early is None:
            self._hand_out(received)
        else:
            self._early.append(received)

    def _hand_out(self, received: Received) -> None:
        try:
            self._on_message(received)
        except Exception as error:
            # As the loop does where a callback fails: others on the connection must not suffer from it.
            self._loop.call_exception_handler(
                {"message": f'queue "{self._queue}": a delivery could not be handed out', "exception": error}
            )

    def _hand_out_early(self) -> None:
        """Some of it in each turn of the loop, as the connection's reader does."""
        turn_ends = time.monotonic() + aiormq_internals.LONGEST_TURN_SECONDS
        while self._early and not self._is_gone:
            self._hand_out(self._early.popleft())
            if time.monotonic() > turn_ends:
                self._loop.call_soon(self._hand_out_early)
                return
        self._early = None

    def _give_up(self, tag: int, error: DecodingError) -> None:
        """Set aside what can never be read: to die of it would stop the queue for all that is behind it."""
        self._acks.deliver(tag, error)
        if self._on_unreadable is not None:
            # Without a verdict it goes back to its queue when the channel closes.
            self._acks.hold(tag, error)
            self._on_unreadable(error)
            return
        _log.error('queue "%s": a message is dead-lettered, because %s', self._queue, error)
        self._acks.settle(tag, error, Verdict.DEAD_LETTER)
        self._flush_soon()

    def _settle(self, received: Received, verdict: Verdict) -> bool:
        if self._is_gone or not self._acks.settle(received.tag, received, verdict):
            return False
        self._flush_soon()
        return True

    def _flush_soon(self) -> None:
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        if not self._is_gone and self._acks.is_waiting:
            number = self._channel.number
            frames = [_frame(number, settlement) for settlement in self._acks.take()]
            aiormq_internals.write_at_once(self._channel, b"".join(frames))

    def _on_cancelled(self, _: object) -> None:
        self._lose(consumer_cancelled(self._queue))

    def _on_closed(self, closing: "asyncio.Future[object]") -> None:
        self._go(lost_consumer(None if closing.cancelled() else closing.exception(), self._queue))

    def _go(self, error: BrokerLostError) -> None:
        self._is_gone = True
        self._lose(error)

    def _lose(self, error: BrokerLostError) -> None:
        if not self._lost.done():
            self._lost.set_result(error)


def _frame(channel_number: int, settlement: Settlement) -> bytes:
    if settlement.verdict is Verdict.ACK:
        return ack_frame(channel_number, settlement.tag, multiple=settlement.multiple)
    return nack_frame(channel_number, settlement.tag, requeue=settlement.verdict is Verdict.REQUEUE)


async def _unused(_: object) -> None:
    """What aiormq would call, had the connection's reader not taken the delivery."""
