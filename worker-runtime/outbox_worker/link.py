"""One consumer of a queue, from its first delivery to its loss."""

import asyncio
import time
from collections.abc import Callable
from functools import partial

from outbox_core.consumer import Consumer, Received

_ARRIVAL_SECONDS = 1.0
"""How long a message may be on its way to us after the one before was settled."""
_LOOK_SECONDS = 0.01
_ARRIVAL_LOOKS = 100


class Link:
    """What a message came by, and is settled through."""

    __slots__ = ("_last", "_settled", "_stopping", "consumer", "is_lost", "keeps_order")

    def __init__(self, stopping: asyncio.Event, *, keeps_order: bool = False) -> None:
        """`keeps_order` settles what is done after `stopping` in `hand_over`, and gives nothing back."""
        self.consumer: Consumer | None = None
        """None until it is open, which is before the first delivery."""
        self.is_lost = False
        """Nothing can be settled any more: the broker delivers again what was not."""
        self.keeps_order = keeps_order
        self._stopping = stopping
        self._settled = 0.0
        self._last: Callable[[], bool] | None = None

    def ack(self, received: Received) -> bool:
        """Tell the broker that the message is done; False where it cannot be told any more."""
        if self.consumer is None:
            return False
        if self.keeps_order:
            return self._settle(partial(self.consumer.ack, received))
        return self.consumer.ack(received)

    def dead_letter(self, received: Received) -> bool:
        """Have the broker dead-letter the message by itself; else as `ack`."""
        if self.consumer is None:
            return False
        if self.keeps_order:
            return self._settle(partial(self.consumer.dead_letter, received))
        return self.consumer.dead_letter(received)

    def give_back(self, received: Received) -> bool:
        """Let somebody else have the message; else as `ack`."""
        if self.keeps_order:
            # The broker would hand it out to us again, at once. It comes first when the channel is closed.
            return False
        return self.consumer is not None and self.consumer.requeue(received)

    async def hand_over(self) -> None:
        """Let the next consumer of an ordered queue begin, with the message behind our last one.

        It begins when we are cancelled or closed, and no message may be on its way to us then: RabbitMQ
        (3.10) would deliver that one late. So we are cancelled before the last message is settled, since
        until then no other is delivered.
        """
        consumer = self.consumer
        if consumer is None or self.is_lost:
            return
        if self._last is not None:
            await consumer.stop()
            self._last()
            return

    async def arrival(self) -> None:
        """Wait for the message that may be on its way to us since the one before was settled."""
        for _ in range(_ARRIVAL_LOOKS):
            consumer = self.consumer
            if consumer is None or self.is_lost or consumer.unsettled:
                return
            if time.monotonic() - self._settled > _ARRIVAL_SECONDS:
                return
            await asyncio.sleep(_LOOK_SECONDS)

    def _settle(self, settle: Callable[[], bool]) -> bool:
        if self._stopping.is_set():
            self._last = settle
            return not self.is_lost
        self._settled = time.monotonic()
        return settle()
