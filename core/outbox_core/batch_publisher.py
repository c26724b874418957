"""Publishing a whole batch in one write, awaiting one future."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from aiormq.abc import AbstractChannel
from pamqp import commands
from pamqp.header import ContentHeader

from outbox_core import aiormq_internals
from outbox_core.broker_errors import PublishTimeoutError, lost, timed_out
from outbox_core.confirms import Confirms
from outbox_core.frames import EncodingError, publish_frames
from outbox_core.publisher import CONFIRMED, NACKED, Message, Outcome, Returned, Unencodable


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
        self._is_lost = False
        self._lost_because: BaseException | None = None
        aiormq_internals.take_over_confirms(channel, self._on_confirm, self._on_return)
        channel.closing.add_done_callback(self._on_closed)

    @property
    def is_usable(self) -> bool:
        """Whether `publish` may still succeed."""
        return not self._is_lost and not self._channel.is_closed

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

    def _on_confirm(self, frame: commands.Basic.Ack | commands.Basic.Nack) -> None:
        answer = CONFIRMED if isinstance(frame, commands.Basic.Ack) else NACKED
        self._confirms.answer(frame.delivery_tag or 0, multiple=frame.multiple, answer=answer)

    def _on_return(self, frame: commands.Basic.Return, header: ContentHeader) -> None:
        returned = Returned(frame.reply_code or 0, frame.reply_text or "")
        self._confirms.note_return(header.properties.message_id or "", frame.routing_key or "", returned)

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
