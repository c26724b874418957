"""What becomes of the broker's objects when a resource is deleted, one step at a time. Pure."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from outbox_operator import durations
from outbox_operator.broker.actions import Action, RemoveUser
from outbox_operator.broker.snapshot import BrokerProblem, Snapshot
from outbox_operator.children.names import Owner
from outbox_operator.planning.pod_credentials import is_user_of
from outbox_operator.resources.metadata import Metadata

FINALIZER = "outbox.dev/broker-cleanup"
"""On a resource whose deletion policy is not Retain."""
SKIP = "outbox.dev/skip-broker-cleanup"
"""The annotation that lets a resource go at once, whatever is left on the broker."""

_PAUSE = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a deletion waits for what may never come."""

    broker: timedelta
    """For a broker that cannot be reached."""
    counts: timedelta
    """For the broker to have counted a message: it counts those of a quorum queue every 5 s."""


@dataclass(frozen=True, slots=True)
class Removal:
    """One step of a deletion."""

    actions: tuple[Action, ...] = ()
    """What to do on the broker now."""
    stops_pods: bool = False
    """Whether the pods have to go first."""
    waiting_for: str | None = None
    """What holds the deletion up, for a person; None where the resource may go after these actions."""
    look_again_after: timedelta = _PAUSE
    """When to take the next step, where it waits and nothing is heard before."""
    given_up: str | None = None
    """What was left behind, for a person, where the resource goes all the same."""


def released(owner: Owner, what: str) -> Removal | None:
    """The end of a deletion that needs nothing from the broker; None if there is something to remove."""
    if owner.spec.deletion_policy == "Retain":
        return Removal()
    if SKIP in owner.metadata.annotations:
        return Removal(given_up=f"{what} was left on the broker, as the annotation {SKIP} asks")
    return None


def remove_users(owner: Owner, snapshot: Snapshot) -> tuple[Action, ...]:
    """All that were made for its pods."""
    return tuple(RemoveUser(name) for name in sorted(snapshot.users or ()) if is_user_of(owner, name))


def without_broker(
    metadata: Metadata, problem: BrokerProblem, what: str, now: datetime, patience: Patience
) -> Removal:
    """Wait for it, but not for ever."""
    left = (metadata.deletion_timestamp or now) + patience.broker - now
    if left > timedelta():
        waiting_for = f"{what} cannot be removed: {problem.message}"
        return Removal(waiting_for=waiting_for, look_again_after=min(left, _PAUSE))
    waited = durations.format(patience.broker)
    return Removal(given_up=f"{what} was left on the broker after {waited}: {problem.message}")
