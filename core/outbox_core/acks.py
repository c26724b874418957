"""Which deliveries of a channel are settled, and the fewest frames that tell the broker so.

Pure. The broker numbers the deliveries of a channel from 1. It takes one ack for all up to a number
(`multiple`), which must never cover a delivery that is not to be acked.
"""

from dataclasses import dataclass
from enum import Enum, auto


class Verdict(Enum):
    """What is to become of a delivery."""

    ACK = auto()
    """It is done."""
    REQUEUE = auto()
    """It goes back to its queue."""
    DEAD_LETTER = auto()
    """It goes to the queue's dead-letter exchange."""


@dataclass(frozen=True, slots=True)
class Settlement:
    """What to tell the broker in one frame."""

    tag: int
    """The delivery, or the last of those meant."""
    verdict: Verdict
    """What becomes of it."""
    multiple: bool = False
    """All up to this one that the broker still waits for are meant; only ever with `ACK`."""


class Acks:
    """The deliveries of one channel."""

    __slots__ = ("_acked", "_first", "_first_held", "_held", "_last", "_rejected", "_unsettled")

    def __init__(self) -> None:
        self._unsettled: dict[int, object] = {}
        self._acked: list[int] = []
        """Settled by `ACK`, and not told yet."""
        self._rejected: dict[int, Verdict] = {}
        """Settled otherwise, and not told yet."""
        self._held = 0
        """How many are held."""
        self._first_held: int | None = None
        """The smallest tag among them: nothing from it on can be acked together."""
        self._first = 1
        """Everything before this tag is settled."""
        self._last = 0
        """The last tag delivered."""

    @property
    def unsettled(self) -> int:
        """How many deliveries have no verdict."""
        return len(self._unsettled) + self._held

    @property
    def is_waiting(self) -> bool:
        """Whether there is something to tell."""
        return bool(self._acked or self._rejected)

    def deliver(self, tag: int, delivery: object) -> None:
        """Note a delivery; tags ascend."""
        self._unsettled[tag] = delivery
        self._last = tag

    def settle(self, tag: int, delivery: object, verdict: Verdict) -> bool:
        """Give a verdict; False where this very delivery has one already, or is of another channel."""
        if self._unsettled.get(tag) is not delivery:
            return False
        del self._unsettled[tag]
        if verdict is Verdict.ACK:
            self._acked.append(tag)
        else:
            self._rejected[tag] = verdict
        return True

    def hold(self, tag: int, delivery: object) -> bool:
        """Leave a delivery without a verdict for good, and forget it; False as of `settle`."""
        if self._unsettled.get(tag) is not delivery:
            return False
        del self._unsettled[tag]
        self._held += 1
        self._first_held = tag if self._first_held is None else min(tag, self._first_held)
        return True

    def take(self) -> list[Settlement]:
        """What to tell now, in this order; it counts as told."""
        # First, so that an ack of all that is left up to a tag does not mean them.
        settlements = [Settlement(tag, verdict) for tag, verdict in self._rejected.items()]
        self._rejected = {}
        if self._acked:
            acked, self._acked = self._acked, []
            first = self._first_unsettled()
            leading = [tag for tag in acked if tag < first]
            if leading:
                settlements.append(Settlement(max(leading), Verdict.ACK, multiple=len(leading) > 1))
            if len(leading) < len(acked):
                settlements += [Settlement(tag, Verdict.ACK) for tag in acked if tag > first]
        return settlements

    def _first_unsettled(self) -> int:
        first, last, unsettled = self._first, self._last, self._unsettled
        if self._first_held is not None:
            last = min(last, self._first_held - 1)
        while first <= last and first not in unsettled:
            first += 1
        self._first = first
        return first
