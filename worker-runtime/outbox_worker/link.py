"""One consumer of a queue, from its first delivery to its loss, and the deliveries that are held of it."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from outbox_core.consumer import Consumer, Received
from outbox_core.publisher import Message
from outbox_worker.errors import InterruptedCallError

_RETURN_COUNTS = ("x-acquired-count", "x-delivery-count")
"""How often a quorum queue has had the message back. Not the number of attempts: they count lost connections,
and whatever else returned the message. From RabbitMQ 4.3 on the second, which the delivery limit is for,
leaves out what was returned by `basic.nack`, and the first does not."""

_EXTENSION = 1 / 8
"""How much longer a delivery may be held to finish with it, as a part of the longest time."""


class LinkLostError(InterruptedCallError):
    """The connection of a message was lost during its attempt: another worker may have it by now."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Why a queue is not to be consumed for now, and how to learn when it can be again."""

    reason: str
    """What is missing, for people."""
    ended: Callable[[], Awaitable[None]]
    """Waits until it is there again."""


class Link:
    """What a message came by, and is settled through."""

    __slots__ = ("consumer", "is_lost", "is_stopped", "keeps_order", "pause", "pausing")

    def __init__(self, *, keeps_order: bool = False) -> None:
        """`keeps_order` gives nothing back: the broker would hand it to us again at once."""
        self.consumer: Consumer | None = None
        """None until it is open, which is before the first delivery."""
        self.is_lost = False
        """Nothing can be settled any more: the broker delivers again what was not. Set by the subscriber."""
        self.keeps_order = keeps_order
        self.pause: Pause | None = None
        """Why to end the consumer, if it is to be ended."""
        self.pausing = asyncio.Event()
        """Set together with `pause`."""
        self.is_stopped = asyncio.Event()
        """Nothing more is delivered, so that what is given back does not come again at once. Set by the
        subscriber, also when the link is lost."""

    @property
    def is_pausing(self) -> bool:
        """The consumer is ended: whatever waits has to be given back."""
        return self.pause is not None and self.is_stopped.is_set()

    def request_pause(self, pause: Pause) -> None:
        """Have the subscriber end this consumer, and open another one when the pause has ended."""
        if self.pause is None:
            self.pause = pause
            self.pausing.set()

    def ack(self, received: Received) -> bool:
        """Tell the broker that the message is done; False where it cannot be told any more."""
        return self.consumer is not None and self.consumer.ack(received)

    def dead_letter(self, received: Received) -> bool:
        """Have the broker dead-letter the message by itself; else as `ack`."""
        return self.consumer is not None and self.consumer.dead_letter(received)

    def requeue(self, received: Received) -> bool:
        """Put the message back to the head of its queue, to be delivered again at once; else as `ack`."""
        return self.consumer is not None and self.consumer.requeue(received)

    def give_back(self, received: Received) -> bool:
        """Let somebody else have the message; else as `ack`. In order, closing the consumer does that."""
        return not self.keeps_order and self.requeue(received)


class Held:
    """A delivery from its arrival until it is settled."""

    __slots__ = ("_longest_seconds", "_until", "link", "received")

    def __init__(self, link: Link, received: Received, longest_seconds: float) -> None:
        """`longest_seconds` is how long it may be held before the broker would close the channel."""
        self.link = link
        self.received = received
        self._longest_seconds = longest_seconds
        self._until = time.monotonic() + longest_seconds

    @property
    def message(self) -> Message:
        return self.received.message

    @property
    def is_lost(self) -> bool:
        """The link is lost: the message comes again, here or elsewhere."""
        return self.link.is_lost

    @property
    def seconds_left(self) -> float:
        """How much longer it may be held."""
        return self._until - time.monotonic()

    @property
    def is_overdue(self) -> bool:
        """It was held for as long as it may."""
        return self.seconds_left <= 0

    @property
    def returns(self) -> int:
        """How many times it was returned to its queue before, as far as the broker counts them."""
        return returns_of(self.message)

    def extend(self) -> None:
        """Allow some more time to finish with it, however long it was held before."""
        self._until = max(self._until, time.monotonic() + self._longest_seconds * _EXTENSION)

    def keep(self) -> None:
        """Hold it until the link is lost, since it must not be returned again."""
        self._until = float("inf")

    def ack(self) -> bool:
        return self.link.ack(self.received)

    def dead_letter(self) -> bool:
        return self.link.dead_letter(self.received)

    def requeue(self) -> bool:
        return self.link.requeue(self.received)

    def give_back(self) -> bool:
        return self.link.give_back(self.received)


def returns_of(message: Message) -> int:
    """How many times a message was returned to its queue before, as far as the broker counts them."""
    counts = (message.headers.get(name) for name in _RETURN_COUNTS)
    return max((count for count in counts if type(count) is int), default=0)
