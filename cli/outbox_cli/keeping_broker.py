"""A broker whose consumers leave in its queue what they cannot read.

The worker's consumer rejects such a message, and its queue dead-letters it. Behind a dead-letter queue there
is no other: the broker would throw it away, and a look would have destroyed what was set aside.
"""

from collections.abc import Callable
from typing import TypeAlias

from aiormq.abc import AbstractChannel

from outbox_core.batch_consumer import BatchConsumer
from outbox_core.broker import Broker
from outbox_core.consumer import Consumer, OnMessage
from outbox_core.header_tables import DecodingError

OnUnreadable: TypeAlias = Callable[[DecodingError], None]
"""Told what is wrong with a message that stays where it is."""


class KeepingConsumer(BatchConsumer):
    """A consumer that settles nothing but what it is told to."""

    def __init__(
        self, channel: AbstractChannel, queue: str, on_message: OnMessage, on_unreadable: OnUnreadable
    ) -> None:
        super().__init__(channel, queue, on_message)
        self._on_unreadable = on_unreadable

    def _give_up(self, tag: int, error: DecodingError) -> None:
        # Without a verdict it goes back to its queue when the channel closes.
        self._acks.deliver(tag, error)
        self._on_unreadable(error)


class KeepingBroker(Broker):
    """A broker for looking into queues."""

    async def keeping_consumer(
        self, queue: str, prefetch_count: int, on_message: OnMessage, on_unreadable: OnUnreadable
    ) -> Consumer:
        """As `consumer`, but for what becomes of a message that cannot be read."""
        consumer = KeepingConsumer(await self._channel(), queue, on_message, on_unreadable)
        try:
            await consumer.start(prefetch_count)
        except BaseException:
            await consumer.aclose()
            raise
        return consumer
