"""What is received, and what a consumer is: the vocabulary of both implementations."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from outbox_core.broker_errors import BrokerLostError
from outbox_core.header_tables import DecodingError
from outbox_core.publisher import Message

ACKS_AT_ONCE = 32
"""How many acks of a quorum queue RabbitMQ works on at a time; with a larger prefetch, others may wait."""


@dataclass(frozen=True, slots=True)
class Received:
    """One message as the broker handed it over."""

    message: Message
    """What was published, with the routing key by which it reached the queue."""
    tag: int
    """The delivery tag: what the channel knows it by."""
    exchange: str
    """Where it was published last; empty for the default exchange."""
    redelivered: bool
    """It may have been handed over before."""


OnMessage: TypeAlias = Callable[[Received], None]
"""Called for each delivery in the loop, never before `Broker.consumer` has returned, and must not wait."""

OnUnreadable: TypeAlias = Callable[[DecodingError], None]
"""Told in the loop what is wrong with a message that nobody can read, and must not wait."""


class Consumer(Protocol):
    """The deliveries of one queue, on a channel of its own.

    It is used up when it is lost: the broker hands out again whatever was not settled, and whoever wants more
    asks the broker for another consumer.
    """

    @property
    def is_usable(self) -> bool:
        """Whether deliveries come, or would: neither lost nor closed, nor stopped."""

    @property
    def unsettled(self) -> int:
        """How many deliveries have been neither acked, requeued nor dead-lettered."""

    def ack(self, received: Received) -> bool:
        """Tell the broker that the message is done, together with others that are.

        Never waits, and is written at the end of the loop's turn. False where it cannot be told any more: the
        channel is gone and the message comes again, or it was settled before, and nothing is sent. So is a
        delivery of another consumer, whose tags mean other messages.
        """

    def requeue(self, received: Received) -> bool:
        """Give the message back, to be handed out again at once; else as `ack`."""

    def dead_letter(self, received: Received) -> bool:
        """Have the broker move the message to the queue's dead-letter exchange; else as `ack`."""

    def hold(self, received: Received) -> bool:
        """Leave the message unsettled until the consumer closes, and forget its content; else as `ack`.

        It still counts as unsettled, and costs no memory here: for readers of more than they can keep.
        """

    async def wait_lost(self) -> BrokerLostError:
        """Wait until deliveries end by no wish of ours, and tell why.

        The connection or the channel is gone, or the broker has cancelled the consumer, as it does when the
        queue is deleted or its leader moves.
        """

    async def stop(self) -> None:
        """Ask for no more deliveries; what comes until the broker has agreed is still delivered.

        What has been delivered can be settled afterwards.
        """

    async def aclose(self) -> None:
        """Write the acks that wait, and close the channel: the broker requeues what is not settled.

        After `stop`, RabbitMQ may also requeue what was settled in the last moment, where this was more than
        32 deliveries that did not follow each other.
        """
