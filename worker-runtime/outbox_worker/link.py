"""One consumer of a queue, from its first delivery to its loss."""

from outbox_core.consumer import Consumer, Received


class Link:
    """What a message came by, and is settled through."""

    __slots__ = ("consumer", "is_lost", "keeps_order")

    def __init__(self, *, keeps_order: bool = False) -> None:
        """`keeps_order` gives nothing back: the broker would hand it to us again at once."""
        self.consumer: Consumer | None = None
        """None until it is open, which is before the first delivery."""
        self.is_lost = False
        """Nothing can be settled any more: the broker delivers again what was not."""
        self.keeps_order = keeps_order

    def ack(self, received: Received) -> bool:
        """Tell the broker that the message is done; False where it cannot be told any more."""
        return self.consumer is not None and self.consumer.ack(received)

    def dead_letter(self, received: Received) -> bool:
        """Have the broker dead-letter the message by itself; else as `ack`."""
        return self.consumer is not None and self.consumer.dead_letter(received)

    def give_back(self, received: Received) -> bool:
        """Let somebody else have the message; else as `ack`. In order, closing the consumer does that."""
        return not self.keeps_order and self.consumer is not None and self.consumer.requeue(received)
