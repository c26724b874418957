"""Which listener has which queue, where several ask for the same one. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from outbox_operator.broker.access import VhostId
from outbox_operator.resources import OutboxListener
from outbox_operator.subscriptions import queues_of

_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Claim:
    """A listener that asks for queues on a virtual host."""

    listener: OutboxListener
    """The listener."""
    vhost: VhostId
    """Where its queues are."""

    @property
    def rank(self) -> tuple[bool, datetime, str]:
        """Whoever has had its queue keeps it: workers may be at it. Else the older comes first.

        The API server's clock has whole seconds, so the name has a say.
        """
        metadata, has_none = self.listener.metadata, self.listener.status.queue is None
        return has_none, metadata.creation_timestamp or _LONG_AGO, metadata.path

    @property
    def names(self) -> tuple[str, str]:
        """The queue and its dead-letter queue: either may be what another one calls its queue."""
        return queues_of(self.listener)


class Claims:
    """All claims, by what they are for."""

    def __init__(self, claims: Iterable[Claim]) -> None:
        self._claimants: dict[tuple[VhostId, str], list[Claim]] = {}
        for claim in sorted(claims, key=lambda claim: claim.rank):
            for name in claim.names:
                self._claimants.setdefault((claim.vhost, name), []).append(claim)

    def obstacle(self, claim: Claim) -> tuple[str, OutboxListener] | None:
        """The queue that another listener has, and that listener; None where nothing is in the way."""
        for name in claim.names:
            first = self._claimants[claim.vhost, name][0]
            if first.listener.metadata.path != claim.listener.metadata.path:
                return name, first.listener
        return None

    def rivals(self, claim: Claim) -> Iterator[OutboxListener]:
        """The others that ask for one of its queues."""
        for name in claim.names:
            for other in self._claimants.get((claim.vhost, name), ()):
                if other.listener.metadata.path != claim.listener.metadata.path:
                    yield other.listener
