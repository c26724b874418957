"""What becomes of the broker's objects when a resource is deleted, one step at a time. Pure."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from outbox.topology import TopologyError, dead_letter_exchange, dead_letter_queue
from outbox_operator import durations
from outbox_operator.broker.actions import Action, RemoveExchange, RemoveUser
from outbox_operator.broker.removal_plan import binding_removal, queue_removal
from outbox_operator.broker.snapshot import BrokerProblem, Snapshot
from outbox_operator.broker.topology_plan import topology_actions
from outbox_operator.children.names import Owner
from outbox_operator.planning.listener_plan import needed_topology, tiers_of
from outbox_operator.planning.pod_credentials import is_user_of
from outbox_operator.resources import OutboxListener, OutboxRelay
from outbox_operator.resources.metadata import Metadata
from outbox_operator.subscriptions import exchange_of, queue_of

FINALIZER = "outbox.dev/broker-cleanup"
"""On a resource whose deletion policy is not Retain."""
SKIP = "outbox.dev/skip-broker-cleanup"
"""The annotation that lets a resource go at once, whatever is left on the broker."""


@dataclass(frozen=True, slots=True)
class Removal:
    """One step of a deletion."""

    actions: tuple[Action, ...] = ()
    """What to do on the broker now."""
    stops_pods: bool = False
    """Whether the pods have to go first."""
    waiting_for: str | None = None
    """What holds the deletion up, for a person; None where the resource may go after these actions."""
    given_up: str | None = None
    """What was left behind, for a person, where the resource goes all the same."""


def listener_removal(
    listener: OutboxListener,
    relay: OutboxRelay | None,
    broker: Snapshot | BrokerProblem,
    now: datetime,
    *,
    is_owner: bool,
    patience: timedelta,
) -> Removal:
    """The next step for a listener; `is_owner` is whether its queue is not an older listener's.

    `patience` is how long it waits for a broker that cannot be reached.
    """
    policy, queue = listener.spec.deletion_policy, queue_of(listener)
    if policy == "Retain" or listener.status.queue is None or not is_owner:
        # A queue that it never had is not its to delete.
        return Removal()
    if SKIP in listener.metadata.annotations:
        return Removal(given_up=f'queue "{queue}" was left on the broker, as the annotation {SKIP} asks')
    if relay is None:
        return Removal(given_up=f'queue "{queue}" was left on the broker, since its OutboxRelay is gone')
    if isinstance(broker, BrokerProblem):
        return _without_broker(listener.metadata, broker, f'queue "{queue}"', now, patience)
    return _remove_queues(listener, relay, broker, now)


def _remove_queues(
    listener: OutboxListener, relay: OutboxRelay, snapshot: Snapshot, now: datetime
) -> Removal:
    queue, exchange = queue_of(listener), exchange_of(relay)
    try:
        found = topology_actions(needed_topology(listener, relay), listener.metadata.path, snapshot)
    except TopologyError as error:
        return Removal(given_up=str(error))
    names = (queue, dead_letter_queue(queue))
    if different := [conflict for conflict in found.conflicts if conflict.name in names]:
        return Removal(given_up=f"not deleted, as it is not what was made: {different[0].message}")
    if_empty = listener.spec.deletion_policy == "DeleteIfEmpty"
    unbind = binding_removal(queue, listener.metadata.path, snapshot)
    if waiting := _left(listener, exchange, snapshot, now, if_empty=if_empty):
        return Removal(unbind, stops_pods=not if_empty, waiting_for=waiting)
    return Removal(
        (
            *unbind,
            *queue_removal(*names, if_empty),
            *_remove_users(listener, snapshot),
        ),
        stops_pods=not if_empty,
    )


def _left(
    listener: OutboxListener, exchange: str, snapshot: Snapshot, now: datetime, *, if_empty: bool
) -> str | None:
    """What has to be waited for before the queues may go."""
    queue = queue_of(listener)
    if if_empty:
        for name in (queue, dead_letter_queue(queue)):
            if messages := snapshot.messages(name):
                return f'queue "{name}" has {messages:,} messages; {_cure(name == queue)}'
    # A message that returns from a shared tier to a queue that is gone stays at the tier's head, and 32 of
    # them stop the tier for every listener (rabbitmq-server#12625).
    longest = max(listener.spec.retry_delays, default=timedelta())
    left = (listener.metadata.deletion_timestamp or now) + longest - now
    busy = [tier for tier in tiers_of(listener, exchange) if snapshot.messages(tier)]
    if busy and left > timedelta():
        seconds = timedelta(seconds=round(left.total_seconds()))
        return (
            f'retries may be on their way back from delay tier "{busy[-1]}"; '
            f"the queue goes when it is empty, or in {durations.format(seconds)}"
        )
    return None


def _cure(is_queue: bool) -> str:
    if is_queue:
        return f"let workers empty it, purge it, or set the annotation {SKIP} to leave it behind"
    return f"redrive or purge them, or set the annotation {SKIP} to leave it behind"


def relay_removal(
    relay: OutboxRelay,
    broker: Snapshot | BrokerProblem,
    now: datetime,
    *,
    others: tuple[str, ...],
    patience: timedelta,
) -> Removal:
    """The next step for a relay; `others` are the paths of relays with the same exchange."""
    policy, exchange = relay.spec.deletion_policy, relay.spec.exchange
    if policy == "Retain" or relay.status.exchange is None:
        return Removal()
    if SKIP in relay.metadata.annotations:
        return Removal(given_up=f'exchange "{exchange}" was left, as the annotation {SKIP} asks')
    if others:
        return Removal(given_up=f'exchange "{exchange}" was left, as OutboxRelay {others[0]} has it too')
    if isinstance(broker, BrokerProblem):
        return _without_broker(relay.metadata, broker, f'exchange "{exchange}"', now, patience)
    names = [name for name in (exchange, dead_letter_exchange(exchange)) if name in broker.exchanges]
    if policy == "DeleteIfEmpty" and (bound := _bound(names, broker)):
        waiting = (
            f"{len(bound)} queues are still bound to it, such as {bound[0]!r}; delete their listeners, "
            f"or set the annotation {SKIP} to leave the exchange behind"
        )
        return Removal(waiting_for=f'exchange "{exchange}": {waiting}')
    return Removal(
        (
            *(RemoveExchange(name, if_unused=policy == "DeleteIfEmpty") for name in names),
            *_remove_users(relay, broker),
        ),
        stops_pods=True,
    )


def _bound(exchanges: list[str], snapshot: Snapshot) -> list[str]:
    return sorted(
        queue
        for queue, bindings in snapshot.bindings.items()
        if any(bound.binding.exchange in exchanges for bound in bindings)
    )


def _remove_users(owner: Owner, snapshot: Snapshot) -> tuple[Action, ...]:
    return tuple(RemoveUser(name) for name in sorted(snapshot.users or ()) if is_user_of(owner, name))


def _without_broker(
    metadata: Metadata, problem: BrokerProblem, what: str, now: datetime, patience: timedelta
) -> Removal:
    if now - (metadata.deletion_timestamp or now) >= patience:
        return Removal(given_up=f"{what} was left on the broker after {patience}: {problem.message}")
    return Removal(waiting_for=f"{what} cannot be removed: {problem.message}")
