"""A resource whose relay names another virtual host than before: what it left behind in the old one. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from outbox.topology import dead_letter_exchange, dead_letter_queue
from outbox_operator.broker.access import BrokerAccess
from outbox_operator.broker.actions import RevokePermissions
from outbox_operator.broker.removal_plan import binding_removal
from outbox_operator.broker.snapshot import BrokerProblem, Reason, Snapshot
from outbox_operator.children.names import Owner
from outbox_operator.conditions import Finding
from outbox_operator.planning.findings import false, true
from outbox_operator.planning.pod_credentials import users_of
from outbox_operator.resources import OutboxListener, OutboxRelay
from outbox_operator.resources.condition import ConditionType
from outbox_operator.resources.virtual_host import MOST_PREVIOUS, VirtualHost
from outbox_operator.subscriptions import queues_of

FORGET = "outbox.dev/forget-vhost"
"""The annotation with the name of a virtual host whose remains are nobody's business any more."""


def place_of(access: BrokerAccess) -> VirtualHost:
    return VirtualHost(management_url=access.management_url, name=access.vhost)


def has_left(owner: Owner, here: VirtualHost | None, vhost: str) -> bool:
    """Whether a resource that is `here` has been in a virtual host of this name, at whatever address.

    `here` is None if nobody knows where it is.
    """
    places = (owner.status.virtual_host, *owner.status.previous_virtual_hosts)
    return any(place.name == vhost for place in places if place is not None and place != here)


def is_known_in(owner: Owner, snapshot: Snapshot) -> bool:
    """Whether a virtual host has something that was made for this very resource before."""
    if users_of(owner, snapshot):
        return True
    if isinstance(owner, OutboxRelay):
        return False
    return any(binding_removal(queue, owner.metadata.path, snapshot) for queue in queues_of(owner))


def elsewhere(owner: Owner, here: VirtualHost, broker: Snapshot | BrokerProblem) -> VirtualHost | None:
    """The other virtual host that its objects were last made in; None if they may be `here`."""
    last = owner.status.virtual_host
    if last is None or last == here:
        return None
    may_be_same = not isinstance(broker, Snapshot) or is_known_in(owner, broker)
    return None if last.name == here.name and may_be_same else last


def as_before(owner: Owner) -> tuple[Finding, ...]:
    """What was last said of previous virtual hosts, while nobody can look at them."""
    return tuple(
        Finding(ConditionType.PREVIOUS_VHOST_DRAINED, each.status, each.reason, each.message)
        for each in owner.status.conditions
        if each.type == ConditionType.PREVIOUS_VHOST_DRAINED
    )


def previous_places(owner: Owner, here: VirtualHost, *, is_made: bool, is_known: bool) -> list[VirtualHost]:
    """The virtual hosts that it has left, oldest first, now that it is `here`.

    `is_made` is whether its objects are there by now. `is_known` is whether something of it was there before:
    then a virtual host of the same name is the same, and only the broker's address is another.
    """
    before, last = list(owner.status.previous_virtual_hosts), owner.status.virtual_host
    if last is not None and last != here and last.name == here.name and is_known:
        moved = {last.management_url: here.management_url}
        before = [
            place.model_copy(update={"management_url": moved.get(place.management_url, place.management_url)})
            for place in before
        ]
    elif last is not None and is_made:
        before.append(last)
    forgotten = owner.metadata.annotations.get(FORGET)
    left = [place for place in dict.fromkeys(before) if place != here and place.name != forgotten]
    return left[-MOST_PREVIOUS:]


@dataclass(frozen=True, slots=True)
class Remains:
    """What is left of a resource in a virtual host that it has left."""

    place: VirtualHost
    """The virtual host."""
    objects: tuple[tuple[str, int | None], ...] = ()
    """Its queues with how many messages each has, None if that is not known; or its exchanges, with 0."""
    revocations: tuple[RevokePermissions, ...] = ()
    """What takes the permissions of its pods' users away there."""
    problem: str | None = None
    """Why it is not known what is there, or why the permissions stay."""

    @property
    def is_nothing(self) -> bool:
        return not self.objects and not self.revocations and self.problem is None

    @property
    def messages(self) -> int | None:
        """How many messages are there; None if that is not known."""
        counts = [count for _, count in self.objects]
        if self.problem is not None and not self.objects:
            return None
        return None if None in counts else sum(count or 0 for count in counts)


def remains(owner: Owner, place: VirtualHost, seen: Snapshot | BrokerProblem | None) -> Remains:
    """What is left in `place`, by a look at it; None if nobody knows how to enter it."""
    match seen:
        case None:
            problem = "its credentials are not known any more"
            return Remains(place, problem=problem)
        case BrokerProblem(reason=Reason.VHOST_MISSING):
            return Remains(place)
        case BrokerProblem():
            return Remains(place, problem=seen.message)
        case Snapshot():
            return Remains(place, _objects(owner, seen), _revocations(owner, seen))


def _objects(owner: Owner, seen: Snapshot) -> tuple[tuple[str, int | None], ...]:
    if isinstance(owner, OutboxRelay):
        exchanges = (owner.spec.exchange, dead_letter_exchange(owner.spec.exchange))
        return tuple((name, 0) for name in exchanges if name in seen.exchanges)
    return tuple(
        (name, seen.messages(name) if seen.is_counted(name) else None)
        for name in queues_of(owner)
        if seen.exists(name)
    )


def _revocations(owner: Owner, seen: Snapshot) -> tuple[RevokePermissions, ...]:
    """The user itself stays: pods enter the virtual host that they moved to as the same one."""
    users = seen.users or {}
    return tuple(
        RevokePermissions(name) for name in users_of(owner, seen) if users[name].permissions is not None
    )


def moved_message(owner: Owner, left: VirtualHost, here: VirtualHost) -> str:
    """What happened, for the Event."""
    return f"it moved from {left} to {here}; {_cure(owner, left)}"


def drained_finding(owner: OutboxListener, left: Sequence[Remains]) -> Finding | None:
    """What is said of the virtual hosts that a listener has left; None if it has left none."""
    if not left:
        return None
    kind, said = ConditionType.PREVIOUS_VHOST_DRAINED, ". ".join(_described(owner, each) for each in left)
    counts = [each.messages for each in left]
    if any(counts):
        return false(kind, "MessagesLeftBehind", said)
    if None in counts:
        return false(kind, "PreviousVhostUnknown", said)
    return true(kind, "QueuesLeftBehind", said)


def _described(owner: Owner, left: Remains) -> str:
    counted = [f'"{name}" with {_counted(count)}' for name, count in left.objects]
    there = f"queue {' and queue '.join(counted)} were left" if counted else "it is not known what was left"
    why = f" ({left.problem})" if left.problem else ""
    return f"{there} in {left.place}{why}; {_cure(owner, left.place)}"


def left_words(owner: Owner) -> str | None:
    """What a deleted resource leaves in previous virtual hosts; None if nothing is known of any."""
    places = owner.status.previous_virtual_hosts
    if not places:
        return None
    where = " and in ".join(str(place) for place in places)
    return f"{_named(owner)} in {where} stayed when it moved, and was not removed"


def _named(owner: Owner) -> str:
    if isinstance(owner, OutboxRelay):
        return f'exchange "{owner.spec.exchange}"'
    return f'queue "{queues_of(owner)[0]}"'


def _counted(count: int | None) -> str:
    if count is None:
        return "an unknown number of messages"
    return "1 message" if count == 1 else f"{count:,} messages"


def _cure(owner: Owner, left: VirtualHost) -> str:
    forget = f"or set the annotation {FORGET}={left.name} to leave it"
    if isinstance(owner, OutboxRelay):
        exchange = owner.spec.exchange
        return (
            f'exchange "{exchange}", "{dead_letter_exchange(exchange)}" and its delay tiers stay there; '
            f"delete them when the queues of its listeners there are empty, {forget}"
        )
    queue = queues_of(owner)[0]
    return (
        f'drain queue "{queue}" and "{dead_letter_queue(queue)}" there (consume them, or move the messages '
        f"with a shovel), wait for retries in the delay tiers, and delete both, {forget}"
    )
