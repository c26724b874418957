"""Publishing with nothing but aio-pika's documented API: slower, and independent of its insides."""

import asyncio
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractExchange
from aio_pika.exceptions import AMQPError, DeliveryError, PublishError
from aiormq.abc import AbstractConnection
from pamqp import commands

from outbox_core.broker_errors import BrokerLostError, PublishTimeoutError, lost, timed_out
from outbox_core.frames import publish_frames
from outbox_core.publisher import (
    CONFIRMED,
    NACKED,
    Answers,
    Message,
    Outcome,
    RareProperties,
    Returned,
    Unencodable,
)

_CLOSE_SECONDS = 5.0
_NOTHING_RARE = RareProperties()
_MALFORMED = (ValueError, TypeError, OverflowError, struct.error)


class PlainPublisher:
    """A `Publisher` on an aio-pika channel opened with `on_return_raises`, which nobody else uses.

    Floats in headers have 32 bits on the wire: pamqp knows no others. aio-pika sends no cluster id, and
    aiormq gives an id to a message that has none.
    """

    def __init__(
        self, channel: AbstractChannel, transport: AbstractConnection, max_message_size: int | None = None
    ) -> None:
        """`transport` is the connection of aiormq that the channel is on."""
        self._channel = channel
        self._transport = transport
        self._max_message_size = max_message_size
        self._publishing = asyncio.Lock()
        self._is_lost = False
        self._lost_because: BaseException | None = None
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        channel.close_callbacks.add(self._on_closed)

    @property
    def is_usable(self) -> bool:
        """Whether `publish` may still succeed."""
        return not self._is_lost and not self._channel.is_closed

    @property
    def transport(self) -> object:
        """See `Publisher.transport`."""
        return self._transport

    async def publish(self, exchange: str, messages: Sequence[Message], timeout: float) -> list[Outcome]:  # noqa: ASYNC109 - the deadline is part of the outcome
        """See `Publisher.publish`."""
        try:
            async with asyncio.timeout(timeout), self._publishing:
                return await self._publish(exchange, messages)
        except TimeoutError:
            self._is_lost = True
            error = PublishTimeoutError(timed_out(exchange, len(messages), timeout))
            self._lost_because = self._lost_because or error
            raise error from None

    async def send(
        self,
        exchange: str,
        messages: Sequence[Message],
        timeout: float,  # noqa: ASYNC109 - the deadline is part of the outcome
        stall_seconds: float | None = None,  # noqa: ARG002 - aio-pika tells of no message before the last
    ) -> Answers:
        """See `Publisher.send`; all or nothing, as `publish`."""
        return _All(await self.publish(exchange, messages, timeout))

    async def aclose(self) -> None:
        """Close the channel; a broker that does not answer is not waited for."""
        self._is_lost = True
        with suppress(AMQPError, OSError, RuntimeError, TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._channel.close()

    async def _publish(self, exchange: str, messages: Sequence[Message]) -> list[Outcome]:
        if not self.is_usable:
            raise lost(self._lost_because, exchange)
        await self._until_unblocked()
        if not self.is_usable:
            raise lost(self._lost_because, exchange)
        target = await self._channel.get_exchange(exchange, ensure=False)
        outcomes: list[Outcome] = []
        for run in _runs_of_different_ids(messages):
            answers = await asyncio.gather(
                *(self._publish_one(target, message) for message in run), return_exceptions=True
            )
            outcomes += [self._outcome(answer, exchange) for answer in answers]
        return outcomes

    async def _until_unblocked(self) -> None:
        """Wait for the end of an alarm: all that is written during one, repeated or not, arrives after it."""
        ready = asyncio.ensure_future(self._transport.ready())
        try:
            await asyncio.wait([ready, self._closed], return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()

    async def _publish_one(self, target: AbstractExchange, message: Message) -> Outcome:
        try:
            # Refuses what the broker would close the channel over.
            publish_frames(1, target.name, message, 0, self._max_message_size)
            await target.publish(_translated(message), message.routing_key, mandatory=True)
        except PublishError as error:
            return _returned(error)
        except DeliveryError:
            return NACKED
        except _MALFORMED as error:
            return Unencodable(str(error))
        return CONFIRMED

    def _outcome(self, answer: Outcome | BaseException, exchange: str) -> Outcome:
        if isinstance(answer, BaseException):
            self._is_lost, self._lost_because = True, self._lost_because or answer
            raise lost(self._lost_because, exchange) from None
        return answer

    def _on_closed(self, _: object, cause: BaseException | None) -> None:
        self._is_lost, self._lost_because = True, self._lost_because or cause
        if not self._closed.done():
            self._closed.set_result(None)


@dataclass(frozen=True, slots=True)
class _All:
    """The `Answers` of a batch that has them all."""

    outcomes: Sequence[Outcome]
    lost: BrokerLostError | None = None


def _runs_of_different_ids(messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
    """Consecutive parts in which no id is there twice: aiormq finds a returned message by its id alone."""
    start, ids = 0, set[str | None]()
    for index, message in enumerate(messages):
        if message.message_id is not None and message.message_id in ids:
            yield messages[start:index]
            start, ids = index, set()
        ids.add(message.message_id)
    yield messages[start:]


def _translated(message: Message) -> aio_pika.Message:
    expiration, rare = message.expiration_ms, message.rare or _NOTHING_RARE
    return aio_pika.Message(
        message.body,
        content_type=message.content_type,
        headers=dict(message.headers),  # type: ignore[arg-type] # checked by the broker's rules, not by pamqp's types
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
        # aio-pika takes seconds and rounds down: half a millisecond keeps the value what it was.
        expiration=None if expiration is None else (expiration + 0.5) / 1000,
        message_id=message.message_id,
        timestamp=message.timestamp,
        content_encoding=rare.content_encoding,
        priority=rare.priority,
        correlation_id=rare.correlation_id,
        reply_to=rare.reply_to,
        type=rare.type,
        app_id=rare.app_id,
    )


def _returned(error: PublishError) -> Returned:
    frame = error.frame
    if isinstance(frame, commands.Basic.Return):
        return Returned(frame.reply_code or 0, frame.reply_text or "")
    return Returned(0, str(error))
