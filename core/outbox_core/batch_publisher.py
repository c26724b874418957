"""Publishing a whole batch in one write, awaiting one future."""

import asyncio
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from aiormq.abc import AbstractChannel

from outbox_core import aiormq_internals
from outbox_core.broker_errors import PublishTimeoutError, lost, timed_out
from outbox_core.confirms import Confirms
from outbox_core.contents import RETURN, Contents
from outbox_core.deliveries import returned_of
from outbox_core.frames import publish_frames
from outbox_core.header_tables import EncodingError
from outbox_core.inflow import METHOD
from outbox_core.publisher import CONFIRMED, NACKED, Message, Outcome, Unencodable

_ACK, _NACK = struct.pack(">HH", 60, 80), struct.pack(">HH", 60, 120)
_tag_and_bits = struct.Struct(">4xQB").unpack_from
_MULTIPLE = 1


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    """A call of `publish`."""

    deadline: asyncio.Timeout
    """Moved to now where the channel is lost, whatever the call waits for."""
    done: asyncio.Future[None]
    """Done when the broker has answered for the whole batch."""

    def finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def give_up(self) -> None:
        if not self.done.done() and not self.deadline.expired():
            self.deadline.reschedule(asyncio.get_running_loop().time())


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

    async def publish(self, exchange: str, messages: Sequence[Message], timeout: float) -> list[Outcome]:  # noqa: ASYNC109 - the deadline is part of the outcome
        """See `Publisher.publish`."""
        if not self.is_usable:
            raise lost(self._lost_because, exchange)
        payload, refused = self._encode(exchange, messages)
        sent = [m for index, m in enumerate(messages) if index not in refused] if refused else messages
        try:
            async with asyncio.timeout(timeout) as deadline:
                outcomes = await self._send(sent, payload, deadline) if sent else []
        except TimeoutError:
            if self._is_lost:
                raise lost(self._lost_because, exchange) from None
            error = PublishTimeoutError(timed_out(exchange, len(sent), timeout))
            self._lose(error)
            raise error from None
        return _merged(refused, outcomes) if refused else outcomes

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

    async def _send(
        self, messages: Sequence[Message], payload: bytes, deadline: asyncio.Timeout
    ) -> list[Outcome]:
        waiting = _Waiting(deadline, asyncio.get_running_loop().create_future())
        self._waiting.add(waiting)
        try:
            # Tags count the messages in the order of the writes: no other call may come between.
            async with self._sending:
                await aiormq_internals.write(self._channel, payload)
                batch = self._confirms.add(messages, waiting.finish)
            await waiting.done
        finally:
            self._waiting.remove(waiting)
        return batch.outcomes()

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


def _merged(refused: dict[int, Outcome], outcomes: list[Outcome]) -> list[Outcome]:
    """The outcomes of what was sent, with those of what was not at their places."""
    merged = list(outcomes)
    for index in sorted(refused):
        merged.insert(index, refused[index])
    return merged
