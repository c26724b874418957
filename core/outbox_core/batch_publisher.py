"""Publishing a whole batch in one write, awaiting one future."""

import asyncio
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aiormq.abc import AbstractChannel

from outbox_core import aiormq_internals
from outbox_core.broker_errors import BrokerLostError, PublishTimeoutError, lost, timed_out
from outbox_core.confirms import Batch, Confirms
from outbox_core.contents import RETURN, Contents
from outbox_core.deliveries import returned_of
from outbox_core.frames import publish_frames
from outbox_core.header_tables import EncodingError
from outbox_core.inflow import METHOD
from outbox_core.publisher import CONFIRMED, NACKED, Answers, Message, Outcome, Unencodable

_ACK, _NACK = struct.pack(">HH", 60, 80), struct.pack(">HH", 60, 120)
_tag_and_bits = struct.Struct(">4xQB").unpack_from
_MULTIPLE = 1


class _Waiting:
    """A call that waits: for its turn to write, and then for the answers to its batch."""

    def __init__(self, deadline: asyncio.Timeout, stall_seconds: float | None) -> None:
        self._deadline = deadline
        self._stall_seconds = stall_seconds
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[None] = self._loop.create_future()

    async def wait(self, batch: Batch) -> None:
        """Wait for all answers, or until none has come for `stall_seconds`."""
        look: asyncio.TimerHandle | None = None

        def look_in(seconds: float, missing: int) -> None:
            nonlocal look
            look = self._loop.call_later(seconds, compare, seconds, missing)

        def compare(seconds: float, missing: int) -> None:
            if batch.missing == missing:
                self.finish()
            else:
                look_in(seconds, batch.missing)

        if self._stall_seconds is not None:
            look_in(self._stall_seconds, batch.missing)
        try:
            await self._done
        finally:
            if look is not None:
                look.cancel()

    def finish(self) -> None:
        """No more answers are to be awaited."""
        if not self._done.done():
            self._done.set_result(None)

    def give_up(self) -> None:
        """The channel is lost: end the call, whatever it waits for."""
        if not self._done.done() and not self._deadline.expired():
            self._deadline.reschedule(self._loop.time())


@dataclass(frozen=True, slots=True, eq=False)
class _Answers:
    """See `Answers`."""

    publisher: "BatchPublisher"
    exchange: str
    refused: Mapping[int, Outcome]
    """Those that were not sent, by index."""
    batch: Batch | None
    """The others; None if there are none."""

    @property
    def outcomes(self) -> Sequence[Outcome | None]:
        sent = self.batch.outcomes if self.batch else ()
        return _merged(self.refused, sent) if self.refused else sent

    @property
    def lost(self) -> BrokerLostError | None:
        return self.publisher.lost(self.exchange)


class BatchPublisher:
    """A `Publisher` on an aiormq channel that nobody else uses."""

    def __init__(self, channel: AbstractChannel, max_message_size: int | None = None) -> None:
        self._channel = channel
        self._max_message_size = max_message_size
        self._frame_max = aiormq_internals.frame_max(channel)
        self._confirms = Confirms()
        self._sending = asyncio.Lock()
        self._waiting: set[_Waiting] = set()
        self._is_ending = False
        self._is_lost = False
        self._lost_because: BaseException | None = None
        self._returns = Contents(RETURN, self._on_content)
        if not aiormq_internals.attach(channel, self):
            aiormq_internals.take_over_confirms(channel, self._on_confirm, self._confirms.note_return)
        channel.closing.add_done_callback(self._on_closed)

    @property
    def is_usable(self) -> bool:
        """Whether `publish` may still succeed."""
        return not (self._is_lost or self._is_ending or self._channel.is_closed)

    @property
    def transport(self) -> object:
        """See `Publisher.transport`."""
        return self._channel.connection

    async def publish(self, exchange: str, messages: Sequence[Message], timeout: float) -> list[Outcome]:  # noqa: ASYNC109 - the deadline is part of the outcome
        """See `Publisher.publish`."""
        answers = await self.send(exchange, messages, timeout)
        outcomes = [outcome for outcome in answers.outcomes if outcome is not None]
        if len(outcomes) == len(messages):
            return outcomes
        if answers.lost is not None:
            raise answers.lost
        raise self._timed_out(exchange, len(messages), timeout)

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
        payload, refused = self._encode(exchange, messages)
        sent = [m for index, m in enumerate(messages) if index not in refused] if refused else messages
        batch: Batch | None = None
        try:
            async with asyncio.timeout(timeout) as deadline:
                waiting = _Waiting(deadline, stall_seconds)
                self._waiting.add(waiting)
                try:
                    if sent:
                        batch = await self._write(sent, payload, waiting)
                        await waiting.wait(batch)
                finally:
                    self._waiting.remove(waiting)
        except TimeoutError:
            if batch is None:
                # Nothing was handed over.
                raise self.lost(exchange) or self._timed_out(exchange, len(sent), timeout) from None
        if batch is not None and batch.missing:
            batch.forget_bodies()
        return _Answers(self, exchange, refused, batch)

    def lost(self, exchange: str) -> BrokerLostError | None:
        """Why no more answers come from this channel; None while it is open."""
        return lost(self._lost_because, exchange) if self._is_lost else None

    async def aclose(self) -> None:
        """Have the broker close the channel, without waiting until it has."""
        self._lose(None)
        aiormq_internals.abandon(self._channel)

    def take(self, kind: int, payload: bytes) -> bool:
        """A frame of the channel, from the connection's reader: False where it answers no message."""
        if kind == METHOD and (method := payload[:4]) in (_ACK, _NACK):
            tag, bits = _tag_and_bits(payload)
            self._on_confirm(tag, bits & _MULTIPLE != 0, method == _ACK)
            return True
        return self._returns.take(kind, payload)

    def end(self) -> None:
        """The broker closes the channel, or has: what is written on it now would cost the connection."""
        self._is_ending = True

    def _encode(self, exchange: str, messages: Sequence[Message]) -> tuple[bytes, dict[int, Outcome]]:
        """The frames of all messages, and those that have none, by index."""
        number, frame_max, largest = self._channel.number, self._frame_max, self._max_message_size
        frames: list[bytes] = []
        refused: dict[int, Outcome] = {}
        for index, message in enumerate(messages):
            try:
                frames.append(publish_frames(number, exchange, message, frame_max, largest))
            except EncodingError as error:
                refused[index] = Unencodable(str(error))
        return b"".join(frames), refused

    async def _write(self, messages: Sequence[Message], payload: bytes, waiting: _Waiting) -> Batch:
        # Tags count the messages in the order of the writes: no other call may come between.
        async with self._sending:
            await aiormq_internals.write(self._channel, payload)
            return self._confirms.add(messages, waiting.finish)

    def _timed_out(self, exchange: str, count: int, seconds: float) -> PublishTimeoutError:
        error = PublishTimeoutError(timed_out(exchange, count, seconds))
        self._lose(error)
        return error

    def _on_confirm(self, tag: int, multiple: bool, is_ack: bool) -> None:
        self._confirms.answer(tag, multiple=multiple, answer=CONFIRMED if is_ack else NACKED)

    def _on_content(self, method: bytes, header: bytes, _: bytes) -> None:
        self._confirms.note_return(*returned_of(method, header))

    def _on_closed(self, closing: "asyncio.Future[object]") -> None:
        self._lose(None if closing.cancelled() else closing.exception())

    def _lose(self, cause: BaseException | None) -> None:
        """Never use the channel again, and let go of whoever waits on it."""
        if self._is_lost:
            return
        self._is_lost, self._lost_because = True, cause
        for waiting in self._waiting:
            waiting.give_up()


def _merged(refused: Mapping[int, Outcome], outcomes: Sequence[Outcome | None]) -> list[Outcome | None]:
    """The outcomes of what was sent, with those of what was not at their places."""
    merged = list(outcomes)
    for index in sorted(refused):
        merged.insert(index, refused[index])
    return merged
