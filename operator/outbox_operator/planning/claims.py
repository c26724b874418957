"""Which listener has which queue, when several ask for the same one. Pure.

The marks on the broker come first: a listener whose bindings lead to a queue has it. A claim alone never
takes a queue away from a listener that has it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from outbox.topology import dead_letter_queue
from outbox_operator.broker.access import VhostId
from outbox_operator.broker.identity import VhostIdentity
from outbox_operator.broker.snapshot import ObservedBinding, Snapshot
from outbox_operator.neighbours import is_neighbour
from outbox_operator.planning.marks import NO_MARKS, Domain, Marks
from outbox_operator.resources import OutboxListener
from outbox_operator.resources.metadata import Metadata
from outbox_operator.subscriptions import queues_of

_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Claim:
    """A listener that asks for queues."""

    path: str
    """The listener, as `namespace/name`."""
    names: tuple[str, str]
    """The queue and its dead-letter queue: either may be what another one calls its queue."""
    created: datetime | None
    """When the listener was created."""
    has_record: bool
    """Whether its status says that it got the queue."""
    vhost: VhostIdentity | None
    """Where its queues are; None if that is not known now."""
    is_valid: bool = True
    """False if the resource cannot be read: it keeps a queue that it has, and gets none."""
    is_marked: bool = False
    """Whether its own mark was seen on one of the queues by the last look at its virtual host."""
    is_entered: bool = True
    """Whether the virtual host let its relay in. Anybody can name the address of somebody else's broker."""
    recorded: VhostId | None = None
    """Where its queues were last made, by its status."""

    @classmethod
    def of(
        cls,
        listener: OutboxListener,
        vhost: VhostIdentity | None,
        *,
        is_marked: bool = False,
        is_entered: bool = True,
    ) -> "Claim":
        metadata, names, status = listener.metadata, queues_of(listener), listener.status
        has_record, created, last = status.queue is not None, metadata.creation_timestamp, status.virtual_host
        recorded = VhostId(last.management_url, last.name) if last else None
        return cls(
            metadata.path,
            names,
            created,
            has_record,
            vhost,
            is_marked=is_marked,
            is_entered=is_entered,
            recorded=recorded,
        )

    @property
    def namespace(self) -> str:
        return self.path.partition("/")[0]

    @classmethod
    def of_invalid(cls, metadata: Metadata, manifest: dict[str, Any]) -> "Claim":
        """That of a listener which cannot be read, from what can be read of it."""
        recorded, asked = _text(manifest, "status"), _text(manifest, "spec")
        queue = recorded or asked or f"{metadata.namespace}.{metadata.name}"
        names = (queue, dead_letter_queue(queue))
        has_record = recorded is not None
        return cls(metadata.path, names, metadata.creation_timestamp, has_record, None, is_valid=False)

    def rank(self, marks: Marks) -> tuple[bool, bool, datetime, str]:
        """The first has the queue: workers may consume from it. Among those that never had it, the oldest.

        The API server's clock has whole seconds, so the name decides between two of the same second.
        """
        is_marked = self.is_marked or marks.has(self.path)
        return not is_marked, not self.has_record, self.created or _LONG_AGO, self.path


class Hold(Enum):
    """How certain it is that another listener has a queue."""

    OWNED = "Owned"
    """It has marked the queue."""
    CLAIMED = "Claimed"
    """It asks for the queue in this very virtual host, and comes first."""
    POSSIBLE = "Possible"
    """It had a queue of this name in a virtual host that is not known now, perhaps this one."""
    FOREIGN = "Foreign"
    """Its mark is on the queue, and another operator manages it."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Another listener that has a queue, or may have it."""

    queue: str
    """The queue."""
    owner: str
    """The other listener, as `namespace/name`."""
    hold: Hold = Hold.OWNED
    """How certain that is."""
    installation: str = ""
    """The installation of a foreign one, if its mark names it."""


@dataclass(frozen=True, slots=True)
class Ownership:
    """What is known of who has a listener's queues."""

    obstacle: Obstacle | None = None
    """What keeps the listener from them."""
    marks: Marks = NO_MARKS
    """The marked bindings of them."""
    stale: tuple[ObservedBinding, ...] = ()
    """Those of listeners that are gone."""
    rivals: frozenset[str] = frozenset()
    """The other listeners, as `namespace/name`, that have bound one of them."""
    asking: frozenset[str] = frozenset()
    """All other listeners that ask for one of them, wherever they are."""


def ownership(claim: Claim, others: Sequence[Claim], snapshot: Snapshot, domain: Domain) -> Ownership:
    """Who has the queues that a listener asks for, by all claims and by what is on the broker."""
    marks = Marks.on(claim.names, snapshot, domain)
    # What an invalid resource asks for is not known for certain.
    asking = {each.path for each in others if not each.is_valid or set(each.names) & set(claim.names)}
    asking.discard(claim.path)
    stale = marks.stale(asking | {claim.path})
    rivals = frozenset(path for path in asking if marks.has(path))
    return Ownership(obstacle(claim, others, marks), marks, stale, rivals, frozenset(asking))


def obstacle(claim: Claim, others: Iterable[Claim], marks: Marks) -> Obstacle | None:
    """What keeps a listener from its queues; `others` are all claims, `marks` are those on its queues."""
    rivals = [other for other in others if other.path != claim.path]
    return _owner(claim, rivals, marks) or _foreign(claim, marks) or _possible_owner(claim, rivals, marks)


def _owner(claim: Claim, rivals: Sequence[Claim], marks: Marks) -> Obstacle | None:
    rank = claim.rank(marks)
    for name in claim.names:
        here = [each for each in rivals if name in each.names and _is_here(each, claim, name, marks)]
        first = min(here, key=lambda each: each.rank(marks), default=None)
        if first is not None and first.rank(marks) < rank:
            return Obstacle(name, first.path, Hold.OWNED if marks.has(first.path) else Hold.CLAIMED)
    return None


def _is_here(other: Claim, claim: Claim, name: str, marks: Marks) -> bool:
    """Whether another claim is certainly for this very queue."""
    if other.path in marks.owners(name):
        return True
    if not other.is_valid or not _is_same(other, claim):
        return False
    if is_neighbour(other.path, claim.namespace) and not _is_proven(other, claim):
        return False
    # The name of a cluster is not unique: a mark that is seen there and not here is on another broker.
    is_elsewhere = other.is_marked and not marks.has(other.path) and not _has_same_address(other, claim)
    return not is_elsewhere


def _foreign(claim: Claim, marks: Marks) -> Obstacle | None:
    for each in marks.foreign():
        # The same resource in another cluster, or in this one before it was rebuilt, shares the queue.
        if each.owner is not None and each.owner != claim.path:
            return Obstacle(each.binding.queue, each.owner, Hold.FOREIGN, each.installation)
    return None


def _possible_owner(claim: Claim, rivals: Sequence[Claim], marks: Marks) -> Obstacle | None:
    if marks.has(claim.path):
        return None
    for name in claim.names:
        for each in sorted(rivals, key=lambda each: each.path):
            is_perhaps_here = each.has_record and _is_same(each, claim) is None
            if is_neighbour(each.path, claim.namespace):
                # It is not enough that it had a queue of this name somewhere.
                is_perhaps_here = is_perhaps_here and _is_recorded(each, claim)
            if name in each.names and is_perhaps_here:
                return Obstacle(name, each.path, Hold.POSSIBLE)
    return None


def _is_proven(other: Claim, claim: Claim) -> bool:
    """Whether the very broker of a claim has let the other's relay in.

    A cluster's name proves nothing: any server can have it.
    """
    if not other.is_entered or other.vhost is None or claim.vhost is None:
        return False
    clusters = [vhost.cluster.id for vhost in (other.vhost, claim.vhost) if vhost.cluster]
    has_same_id = len(clusters) > 1 and clusters[0] is not None and clusters[0] == clusters[1]
    return has_same_id or other.vhost.address == claim.vhost.address


def _is_recorded(other: Claim, claim: Claim) -> bool:
    return claim.vhost is not None and other.recorded == claim.vhost.address


def _is_same(one: Claim, other: Claim) -> bool | None:
    return one.vhost.is_same(other.vhost) if one.vhost and other.vhost else None


def _has_same_address(one: Claim, other: Claim) -> bool:
    return one.vhost is not None and other.vhost is not None and one.vhost.address == other.vhost.address


def _text(manifest: dict[str, Any], part: str) -> str | None:
    """The queue that the spec or the status of an unreadable resource names."""
    found = manifest.get(part)
    queue = found.get("queue") if isinstance(found, dict) else None
    return queue if isinstance(queue, str) and queue else None
