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
        self._sending: set[asyncio.Task[None]] = set()
        """Go on after `send` has returned, until each message has its answer or the channel is lost."""
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
        answers = await self.send(exchange, messages, timeout)
        outcomes = [outcome for outcome in answers.outcomes if outcome is not None]
        if len(outcomes) == len(messages):
            return outcomes
        raise answers.lost or self._timed_out(exchange, len(messages), timeout)

    async def send(
        self,
        exchange: str,
        messages: Sequence[Message],
        timeout: float,  # noqa: ASYNC109 - the deadline is part of the outcome
        stall_seconds: float | None = None,
    ) -> Answers:
        """See `Publisher.send`."""
        if not self.is_usable:
            raise lost(self._lost_because, exchange)
        answers = _Answers(self, exchange, [None] * len(messages))
        sending = asyncio.create_task(self._send(answers, messages))
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)
        try:
            await _answered(sending, answers, timeout, stall_seconds)
        except BaseException:
            sending.cancel()
            raise
        if not answers.is_handed_over:
            raise answers.lost or self._timed_out(exchange, len(messages), timeout)
        return answers

    def lost(self, exchange: str) -> BrokerLostError | None:
        """Why no more answers come from this channel; None while it is open."""
        return lost(self._lost_because, exchange) if self._is_lost else None

    async def aclose(self) -> None:
        """Close the channel; a broker that does not answer is not waited for."""
        self._lose(None)
        with suppress(AMQPError, OSError, RuntimeError, TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._channel.close()

    async def _send(self, answers: "_Answers", messages: Sequence[Message]) -> None:
        async with self._publishing:
            if self.is_usable:
                await self._until_unblocked()
            if not self.is_usable:
                self._lose(None)
                return
            try:
                target = await self._channel.get_exchange(answers.exchange, ensure=False)
            except Exception as error:
                self._lose(error)
                return
            answers.is_handed_over = True
            for start, end in _runs_of_different_ids(messages):
                answering = (
                    self._answer(answers, place, target, messages[place]) for place in range(start, end)
                )
                # All of them: what was confirmed before the channel was lost is known then.
                problems = await asyncio.gather(*answering, return_exceptions=True)
                if (problem := next(filter(None, problems), None)) is not None:
                    self._lose(problem)
                    return

    async def _answer(
        self, answers: "_Answers", place: int, target: AbstractExchange, message: Message
    ) -> None:
        try:
            answers.outcomes[place] = await self._publish_one(target, message)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # aiormq cancels what waits on a channel that has closed.
            raise BrokerLostError("the channel is closed") from error

    def _timed_out(self, exchange: str, count: int, seconds: float) -> PublishTimeoutError:
        error = PublishTimeoutError(timed_out(exchange, count, seconds))
        self._lose(error)
        return error

    def _lose(self, cause: BaseException | None) -> None:
        """Never use the channel again, and let go of whoever waits on it."""
        self._is_lost, self._lost_because = True, self._lost_because or cause
        for sending in self._sending:
            if sending is not asyncio.current_task():
                sending.cancel()

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

    def _on_closed(self, _: object, cause: BaseException | None) -> None:
        self._is_lost, self._lost_because = True, self._lost_because or cause
        if not self._closed.done():
            self._closed.set_result(None)


@dataclass(slots=True, eq=False)
class _Answers:
    """See `Answers`."""

    publisher: PlainPublisher
    exchange: str
    outcomes: list[Outcome | None]
    is_handed_over: bool = False
    """Some of the messages may have arrived."""

    @property
    def lost(self) -> BrokerLostError | None:
        return self.publisher.lost(self.exchange)


async def _answered(
    sending: "asyncio.Task[None]",
    answers: _Answers,
    longest_seconds: float,
    stall_seconds: float | None,
) -> None:
    """Wait for all answers, or until none has come for `stall_seconds`."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + longest_seconds
    while not sending.done() and (rest := ends - loop.time()) > 0:
        was_handed_over, missing = answers.is_handed_over, answers.outcomes.count(None)
        await asyncio.wait([sending], timeout=rest if stall_seconds is None else min(stall_seconds, rest))
        if was_handed_over and answers.outcomes.count(None) == missing:
            return


def _runs_of_different_ids(messages: Sequence[Message]) -> Iterator[tuple[int, int]]:
    """Consecutive parts in which no id is there twice: aiormq finds a returned message by its id alone."""
    start, ids = 0, set[str | None]()
    for index, message in enumerate(messages):
        if message.message_id is not None and message.message_id in ids:
            yield start, index
            start, ids = index, set()
        ids.add(message.message_id)
    yield start, len(messages)


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
