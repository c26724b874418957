"""Reading a queue from its head without taking anything away that is not acked."""

import asyncio
from collections import deque
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from outbox_cli.failures import CommandError
from outbox_core.broker import Broker
from outbox_core.consumer import Consumer, Received
from outbox_core.header_tables import DecodingError

WINDOW = 2000
"""How many messages are on their way at a time."""
_LARGEST_WINDOW = 65_535
_SMALLEST_WINDOW = 100
_BYTES_AT_HAND = 64 << 20
_LOOK_SECONDS = 1.0
_LOOKS_AT_NOTHING = 3
_LOOKS_AT_MOST = 30


@dataclass(frozen=True, slots=True)
class Taken:
    """A message that is ours until it is acked, or the reader closed."""

    received: Received
    """The message."""
    consumer: Consumer
    """Whom it came to."""

    def ack(self) -> bool:
        """Remove it from the queue; False where that cannot be told any more, and it stays."""
        return self.consumer.ack(self.received)

    def hold(self) -> None:
        """Keep it from being read again until the reader closes, without its content; not if acked."""
        self.consumer.hold(self.received)


def wider(window: int, mean_bytes: float) -> int:
    """The next window: twice as wide, unless messages of this size would take too much memory."""
    affordable = int(_BYTES_AT_HAND / max(mean_bytes, 1))
    return max(_SMALLEST_WINDOW, min(2 * window, _LARGEST_WINDOW, affordable))


class QueueReader:
    """The messages that are in a queue at the beginning, each once; those not acked go back at the end.

    What is requeued would come to the front again and be read once more, so it is held until the end. A
    window half full of held messages lets little through: another consumer, with a wider one, reads on.
    """

    def __init__(
        self, broker: Broker, queue: str, *, at_most: int | None = None, window: int = WINDOW
    ) -> None:
        self._broker = broker
        self._queue = queue
        self._at_most = at_most
        self._window = window if at_most is None else min(window, at_most)
        self._consumers: list[Consumer] = []
        self._arrived: deque[Taken] = deque()
        self._arrival = asyncio.Event()
        self._left = 0
        self._taken = self._taken_bytes = 0
        self.depth = 0
        """How many messages were waiting at the beginning."""
        self.unreadable: list[str] = []
        """Why some of them cannot be read; they stay."""

    async def __aenter__(self) -> Self:
        # What fails again while this goes on comes back as a dead letter, and is not read a second time.
        self.depth = await self._broker.depth(self._queue)
        self._left = self.depth if self._at_most is None else min(self.depth, self._at_most)
        if self._left:
            await self._consume()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for consumer in self._consumers:
            await consumer.aclose()

    async def take(self, most: int) -> list[Taken]:
        """The next messages, at least one; none where all have been read."""
        if self._left <= 0:
            return []
        if not self._arrived:
            if self._consumers[-1].unsettled > self._window // 2:
                self._window = wider(self._window, self._taken_bytes / max(self._taken, 1))
                await self._consume()
            if not await self._wait():
                return []
        count = max(0, min(most, self._left, len(self._arrived)))
        self._left -= count
        taken = [self._arrived.popleft() for _ in range(count)]
        self._taken += count
        self._taken_bytes += sum(len(each.received.message.body) for each in taken)
        return taken

    async def _consume(self) -> None:
        def arrived(received: Received) -> None:
            self._arrived.append(Taken(received, consumer))
            self._arrival.set()

        def unreadable(error: DecodingError) -> None:
            self.unreadable.append(str(error))
            self._left -= 1
            self._arrival.set()

        consumer = await self._broker.consumer(self._queue, self._window, arrived, on_unreadable=unreadable)
        self._consumers.append(consumer)

    async def _wait(self) -> bool:
        """Until there is a message; False where there is none to come, since others have read the rest."""
        looks = looks_at_nothing = 0
        while not self._arrived and self._left > 0:
            self._arrival.clear()
            try:
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._arrival.wait()
            except TimeoutError:
                looks += 1
                # What is on its way to us does not count as waiting any more: one look is not enough.
                is_empty = not await self._broker.depth(self._queue)
                looks_at_nothing = looks_at_nothing + 1 if is_empty else 0
            for consumer in self._consumers:
                if not consumer.is_usable:
                    raise await consumer.wait_lost()
            if looks_at_nothing >= _LOOKS_AT_NOTHING:
                break
            if looks >= _LOOKS_AT_MOST:
                raise CommandError(
                    f'queue "{self._queue}" has messages and delivers none; '
                    "look whether a majority of its replicas is running"
                )
        return bool(self._arrived)
