"""What becomes of a listener's queues when it is deleted. Pure."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from outbox.topology import TopologyError, dead_letter_queue
from outbox_operator.broker.removal_plan import binding_removal, queue_removal
from outbox_operator.broker.snapshot import BrokerProblem, Snapshot
from outbox_operator.broker.topology_plan import topology_actions
from outbox_operator.planning.calm import Calm
from outbox_operator.planning.listener_plan import needed_topology, tiers_of
from outbox_operator.planning.removal import SKIP, Patience, Removal, remove_users, without_broker
from outbox_operator.resources import OutboxListener, OutboxRelay
from outbox_operator.subscriptions import exchange_of, queue_of


@dataclass(frozen=True, slots=True)
class DepartingListener:
    """A listener that is being deleted, and what was seen."""

    listener: OutboxListener
    """The listener."""
    relay: OutboxRelay | None
    """Its relay as it is or was; None where nobody knows."""
    broker: Snapshot | BrokerProblem
    """The virtual host, or why it cannot be seen."""
    is_owner: bool
    """Whether no older listener has its queue."""
    has_pods: bool
    """Whether some of its pods still run."""
    calm: Calm
    """Since when nothing was seen of its messages."""


def listener_removal(view: DepartingListener, now: datetime, patience: Patience) -> Removal:
    """The next step."""
    listener, queue = view.listener, queue_of(view.listener)
    if listener.spec.deletion_policy == "Retain" or not view.is_owner or not _has_it(listener, view.broker):
        # A queue that it never had is not its to delete.
        return Removal()
    if SKIP in listener.metadata.annotations:
        return Removal(given_up=f'queue "{queue}" was left on the broker, as the annotation {SKIP} asks')
    if view.relay is None:
        return Removal(given_up=f'queue "{queue}" was left on the broker, since its OutboxRelay is gone')
    if isinstance(view.broker, BrokerProblem):
        return without_broker(listener.metadata, view.broker, f'queue "{queue}"', now, patience)
    return _remove_queues(view, view.relay, view.broker, now, patience)


def _has_it(listener: OutboxListener, broker: Snapshot | BrokerProblem) -> bool:
    """Whether the queue was ever its own: by the status, or where that was never written, by a binding."""
    if listener.status.queue is not None or isinstance(broker, BrokerProblem):
        return listener.status.queue is not None
    return bool(binding_removal(queue_of(listener), listener.metadata.path, broker))


def _remove_queues(
    view: DepartingListener, relay: OutboxRelay, snapshot: Snapshot, now: datetime, patience: Patience
) -> Removal:
    listener, queue = view.listener, queue_of(view.listener)
    try:
        found = topology_actions(needed_topology(listener, relay), listener.metadata.path, snapshot)
    except TopologyError as error:
        return Removal(given_up=str(error))
    names = (queue, dead_letter_queue(queue))
    if different := [conflict for conflict in found.conflicts if conflict.name in names]:
        return Removal(given_up=f"not deleted, as it is not what was made: {different[0].message}")
    if_empty = listener.spec.deletion_policy == "DeleteIfEmpty"
    unbind = binding_removal(queue, listener.metadata.path, snapshot)
    waiting = Removal(unbind, stops_pods=not if_empty)
    if if_empty and (messages := _messages(names, snapshot)):
        return replace(waiting, waiting_for=messages)
    if retries := _retries(view, exchange_of(relay), snapshot, now, patience):
        return replace(waiting, waiting_for=retries)
    if _is_early(view, exchange_of(relay), now, patience):
        late = "the broker counts messages some seconds late; the queue goes when none has come up by then"
        return replace(waiting, waiting_for=late, look_again_after=patience.counts)
    actions = (*unbind, *queue_removal(*names, if_empty), *remove_users(listener, snapshot))
    return Removal(actions, stops_pods=not if_empty)


def _messages(queues: tuple[str, str], snapshot: Snapshot) -> str | None:
    cures = ("let workers empty it, purge it,", "redrive or purge them,")
    for name, cure in zip(queues, cures, strict=True):
        if count := snapshot.messages(name):
            messages = "1 message" if count == 1 else f"{count:,} messages"
            return f'queue "{name}" has {messages}; {cure} or set the annotation {SKIP} to leave it behind'
    return None


def _retries(
    view: DepartingListener, exchange: str, snapshot: Snapshot, now: datetime, patience: Patience
) -> str | None:
    """What has to be waited for, as long as a retry may be on its way.

    One that returns from a shared tier to a queue that is gone stays at the tier's head, and 32 of them stop
    the tier for every listener (rabbitmq-server#12625).
    """
    tiers = tiers_of(view.listener, exchange)
    deadline = _last_return(view, patience, now)
    if not tiers or now >= deadline:
        return None
    latest = f"or at {deadline:%Y-%m-%d %H:%M:%S} UTC"
    if view.listener.spec.deletion_policy == "Delete" and view.has_pods:
        return f"its pods may still send retries; the queue goes when they have ended, {latest}"
    if busy := [tier for tier in tiers if snapshot.messages(tier)]:
        return (
            f'retries may be on their way back from delay tier "{busy[-1]}"; '
            f"the queue goes when that is empty, {latest}"
        )
    return None


def _is_early(view: DepartingListener, exchange: str, now: datetime, patience: Patience) -> bool:
    """Whether there may be a retry that the broker has not counted yet."""
    if not tiers_of(view.listener, exchange) or now >= _last_return(view, patience, now):
        return False
    is_stopped = view.listener.spec.deletion_policy == "Delete"
    looked_at = [view.calm.tiers] if is_stopped else [view.calm.tiers, view.calm.queue]
    return any(since is None or now - since < patience.counts for since in looked_at)


def _last_return(view: DepartingListener, patience: Patience, now: datetime) -> datetime:
    """When the last retry is back, whatever else there is in the tiers."""
    spec, deleted = view.listener.spec, view.listener.metadata.deletion_timestamp or now
    if spec.deletion_policy == "Delete":
        # The pods are stopped; what they had begun may end in one more retry.
        ending = spec.worker.shutdown_timeout if spec.worker else timedelta()
        return deleted + ending + max(spec.retry_delays, default=timedelta()) + patience.counts
    # Workers go on, and one message may go through all the tiers without ever being seen in the queue.
    return (view.calm.queue or now) + sum(spec.retry_delays, timedelta()) + patience.counts
