"""The steps by which a deleted listener's queues are removed. Pure.

`Delete` stops the pods and removes both queues once no retry can return to them. `DeleteIfEmpty` removes no
message: it unbinds the queue and lets workers drain it, stops them, and removes the queue after it has been
empty for longer than the broker's counts are late. Then it closes the dead-letter queue, which leaves its
mark on a binding that no message takes, and removes that queue after the same time.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from outbox.topology import Binding, TopologyError, dead_letter_exchange, dead_letter_queue
from outbox_operator.broker.actions import Action, MakeBinding, RemoveBinding, RemoveQueue
from outbox_operator.broker.removal_plan import binding_removal, open_bindings
from outbox_operator.broker.snapshot import BrokerProblem, Snapshot
from outbox_operator.broker.topology_plan import topology_actions
from outbox_operator.neighbours import described
from outbox_operator.planning.calm import Calm
from outbox_operator.planning.claims import Hold, Ownership
from outbox_operator.planning.listener_plan import lost_bindings, needed_topology, tiers_of
from outbox_operator.planning.removal import SKIP, Patience, Removal, released, remove_users, without_broker
from outbox_operator.resources import OutboxListener, OutboxRelay
from outbox_operator.resources.virtual_host import VirtualHost
from outbox_operator.subscriptions import exchange_of, queue_of, queues_of

_LATE = "the broker counts messages some seconds late; the queue goes when none has come up by then"

_RELAY_INVALID = BrokerProblem("RelayInvalid", "its OutboxRelay cannot be read; the status of that says why")


@dataclass(frozen=True, slots=True)
class DepartingListener:
    """A listener that is being deleted, and what was seen."""

    listener: OutboxListener
    """The listener."""
    relay: OutboxRelay | None
    """Its relay as it is or was; None where nobody knows."""
    broker: Snapshot | BrokerProblem
    """The virtual host, or why it cannot be seen."""
    owning: Ownership
    """Who has its queues, by the marks on the broker."""
    has_pods: bool
    """Whether some of its pods still run, or may be started."""
    calm: Calm
    """Since when nothing was seen of its messages."""
    is_relay_invalid: bool = False
    """Whether the relay is there after all, and cannot be read."""
    elsewhere: VirtualHost | None = None
    """The virtual host that its queue is in, if the relay is for another one by now."""


def listener_removal(view: DepartingListener, now: datetime, patience: Patience) -> Removal:
    """The next step."""
    listener, queue = view.listener, queue_of(view.listener)
    if end := listener_released(listener):
        return end
    if view.elsewhere is not None and not _is_marked(view):
        where = f"in {view.elsewhere}, as its OutboxRelay is for another virtual host by now"
        return Removal(given_up=f'queue "{queue}" was left {where}')
    if listener.status.queue is None and not _is_marked(view):
        # A queue that it never had is not its to delete.
        return Removal()
    if view.relay is None and not view.is_relay_invalid:
        return Removal(given_up=f'queue "{queue}" was left on the broker, since its OutboxRelay is gone')
    if view.relay is None or isinstance(view.broker, BrokerProblem):
        problem = view.broker if isinstance(view.broker, BrokerProblem) else _RELAY_INVALID
        return without_broker(listener.metadata, problem, f'queue "{queue}"', now, patience)
    return _kept(view, view.broker) or _remove_own(view, view.relay, view.broker, now, patience)


def _remove_own(
    view: DepartingListener, relay: OutboxRelay, snapshot: Snapshot, now: datetime, patience: Patience
) -> Removal:
    """The next step of the removal of queues that are verified to be the listener's."""
    listener = view.listener
    if difference := _difference(listener, relay, snapshot):
        return Removal(given_up=difference)
    exchange = exchange_of(relay)
    unbind = _unbind(view, exchange, snapshot)
    if bound := _bound_by_others(view):
        problem = BrokerProblem("InUse", bound)
        waiting = without_broker(listener.metadata, problem, f'queue "{queue_of(listener)}"', now, patience)
        return replace(waiting, actions=unbind)
    installation = view.owning.marks.domain.installation
    step = _Step(listener, view.calm, exchange, snapshot, now, patience, unbind, installation)
    is_if_empty = listener.spec.deletion_policy == "DeleteIfEmpty"
    return _remove_if_empty(step) if is_if_empty else _remove(step, has_pods=view.has_pods)


def listener_released(listener: OutboxListener) -> Removal | None:
    """The end of its deletion if that needs nothing from the broker."""
    return released(listener, f'queue "{queue_of(listener)}"')


def _is_marked(view: DepartingListener) -> bool:
    """Whether the broker shows that the queue is the listener's, whatever the resources say.

    A mark on the dead-letter queue is there until that queue goes, so a restarted operator finds it too.
    """
    return view.calm.was_marked or view.owning.marks.has(view.listener.metadata.path)


def _kept(view: DepartingListener, snapshot: Snapshot) -> Removal | None:
    """The end of a deletion that removes no queue, as the queue is not verified to be the listener's."""
    listener, queue = view.listener, f'queue "{queue_of(view.listener)}"'
    lost = lost_bindings(listener, snapshot, view.owning.marks.domain.installation)
    users = remove_users(listener, snapshot)
    if view.owning.obstacle is not None:
        has = "may have" if view.owning.obstacle.hold is Hold.POSSIBLE else "has"
        owner = described("OutboxListener", view.owning.obstacle.owner, listener.metadata.namespace)
        given_up = f"{queue} was left, as {owner} {has} it"
        is_news = listener.status.queue is not None
        return Removal((*lost, *users), stops_pods=True, given_up=given_up if is_news else None)
    if _is_marked(view):
        return None
    is_there = any(name in snapshot.queues for name in queues_of(listener))
    given_up = f"{queue} was left, as it has no binding with the mark of this listener"
    return Removal(users, stops_pods=True, given_up=given_up if is_there else None)


def _unbind(view: DepartingListener, exchange: str, snapshot: Snapshot) -> tuple[Action, ...]:
    """How the way into its queue is closed: its own bindings go, and those of listeners that are gone.

    A mark stays on the dead-letter queue, for whoever goes on with the deletion.
    """
    (queue, letters), path = queues_of(view.listener), view.listener.metadata.path
    installation, dlx = view.owning.marks.domain.installation, dead_letter_exchange(exchange)
    own = binding_removal(queue, path, snapshot, installation)
    is_unmarked = path not in view.owning.marks.owners(letters)
    can_be_marked = letters in snapshot.queues and dlx in snapshot.exchanges
    mark = MakeBinding(Binding(dlx, letters, queue), path, installation)
    return (
        *((mark,) if own and is_unmarked and can_be_marked else ()),
        *own,
        *(RemoveBinding(each.binding, each.properties_key) for each in view.owning.stale),
    )


def _bound_by_others(view: DepartingListener) -> str | None:
    """Which other listener has marked one of its queues; such a queue is never removed."""
    for each in view.owning.marks.bindings:
        is_own = each.is_of(view.listener.metadata.path, view.owning.marks.domain.installation)
        if not is_own and each not in view.owning.stale:
            of = f" of installation {each.installation}" if each.installation else ""
            other = described("OutboxListener", each.owner or "", view.listener.metadata.namespace)
            return (
                f'queue "{each.binding.queue}" is bound by {other}{of} too; '
                "delete that one first, or remove its bindings"
            )
    return None


def _difference(listener: OutboxListener, relay: OutboxRelay, snapshot: Snapshot) -> str | None:
    """Why its queues are not those that were made for it."""
    try:
        found = topology_actions(needed_topology(listener, relay), listener.metadata.path, snapshot)
    except TopologyError as error:
        return str(error)
    names = (queue_of(listener), dead_letter_queue(queue_of(listener)))
    if different := [conflict for conflict in found.conflicts if conflict.name in names]:
        return f"not deleted, as it is not what was made: {different[0].message}"
    return None


@dataclass(frozen=True, slots=True)
class _Step:
    """All that the next step follows from, once it is known to be the listener's own to take."""

    listener: OutboxListener
    calm: Calm
    exchange: str
    snapshot: Snapshot
    now: datetime
    patience: Patience
    unbind: tuple[Action, ...]
    """How the way into the queue is closed."""
    installation: str
    """The installation of this operator."""

    @property
    def tiers(self) -> tuple[str, ...]:
        return tiers_of(self.listener, self.exchange, self.calm.delays)

    @property
    def delays(self) -> tuple[timedelta, ...]:
        return tuple(dict.fromkeys((*self.listener.spec.retry_delays, *self.calm.delays)))

    def lasts(self, *since: datetime | None) -> bool:
        """Whether all of these have been so for as long as a count may be late."""
        return all(moment is not None and self.now - moment >= self.patience.counts for moment in since)

    def remove(self, queue: str) -> RemoveQueue:
        """Remove a queue that nobody else has marked, by the policy."""
        if_empty = self.listener.spec.deletion_policy == "DeleteIfEmpty"
        return RemoveQueue(queue, if_empty, self.listener.metadata.path, self.installation)

    def late(self, *actions: Action) -> Removal:
        """Do this, and wait until a message would have been counted."""
        return Removal(actions, waiting_for=_LATE, look_again_after=self.patience.counts)


def _remove(step: _Step, *, has_pods: bool) -> Removal:
    """The next step of a removal with all messages.

    A retry that returns from a shared tier to a queue that is gone stays at the tier's head, and 32 of them
    stop the tier for every listener (rabbitmq-server#12625): it is waited for.
    """
    listener, queue = step.listener, queue_of(step.listener)
    waiting = Removal(step.unbind, stops_pods=True)
    spec, deleted = listener.spec, listener.metadata.deletion_timestamp or step.now
    # What the pods had begun may end in one more retry.
    ending = spec.worker.shutdown_timeout if spec.worker else timedelta()
    deadline = deleted + ending + max(step.delays, default=timedelta()) + step.patience.counts
    if step.tiers and step.now < deadline:
        if has_pods:
            words = (
                f"its pods may still send retries; the queue goes when they have ended, {_or_at(deadline)}"
            )
            return replace(waiting, waiting_for=words)
        if retries := _retries(step, deadline):
            return replace(waiting, waiting_for=retries)
        if not step.lasts(step.calm.tiers):
            return replace(waiting, waiting_for=_LATE, look_again_after=step.patience.counts)
    queues = map(step.remove, (queue, dead_letter_queue(queue)))
    return Removal((*step.unbind, *queues, *remove_users(listener, step.snapshot)), stops_pods=True)


def _remove_if_empty(step: _Step) -> Removal:
    """The next step of a removal without any message."""
    queue = queue_of(step.listener)
    if step.unbind:
        # What is known of its messages counts from when nothing new can come.
        return Removal(step.unbind, waiting_for=_messages(step) or _LATE, look_again_after=timedelta())
    if holding := _bound(step) or _messages(step):
        return Removal(waiting_for=holding)
    if step.snapshot.exists(queue):
        return _drain(step) or step.late(step.remove(queue))
    letters, calm = dead_letter_queue(queue), step.calm
    if closing := _close_letters(step):
        return step.late(*closing)
    if not step.lasts(calm.removed, calm.dead_letters, calm.letters_unbound):
        return step.late()
    return Removal((step.remove(letters), *remove_users(step.listener, step.snapshot)), stops_pods=True)


def _close_letters(step: _Step) -> tuple[Action, ...]:
    """Unbind the dead-letter queue; a dead letter that cannot be routed stays with its sender.

    The last mark moves to a binding that no message takes: after a restart it is all that shows whose the
    queue is.
    """
    letters, path = dead_letter_queue(queue_of(step.listener)), step.listener.metadata.path
    dlx = dead_letter_exchange(step.exchange)
    bindings = open_bindings(letters, path, step.snapshot, step.installation)
    if not bindings:
        return ()
    mark = MakeBinding(Binding(dlx, letters, letters), path, step.installation)
    return (*((mark,) if dlx in step.snapshot.exchanges else ()), *bindings)


def _drain(step: _Step) -> Removal | None:
    """What comes before the end of an empty queue; None if it can hold no message any more."""
    calm, delays = step.calm, step.delays
    # Workers go on, and one message may go through all the tiers without ever being seen in the queue.
    if waiting := _wait_for_retries(step, calm.queue, sum(delays, timedelta())):
        return waiting
    if not step.lasts(calm.queue, calm.dead_letters):
        return step.late()
    if calm.stopped is None:
        return Removal(stops_pods=True, waiting_for="the queue goes after its pods have ended")
    if waiting := _wait_for_retries(step, calm.stopped, max(delays, default=timedelta())):
        return waiting
    return None if step.lasts(calm.stopped) else step.late()


def _bound(step: _Step) -> str | None:
    """What other ways lead into the queue: a message may come by them at any time."""
    for each in step.snapshot.bindings.get(queue_of(step.listener), ()):
        binding = each.binding
        return (
            f'queue "{binding.queue}" is still bound to exchange "{binding.exchange}" with the key '
            f'"{binding.routing_key}", by somebody else; remove that binding, '
            f"or set the annotation {SKIP} to leave the queue behind"
        )
    return None


def _messages(step: _Step) -> str | None:
    queue = queue_of(step.listener)
    is_drained = step.listener.spec.worker is not None and step.calm.stopped is None
    cures = {
        queue: "let workers empty it, purge it," if is_drained else "consume them, purge it,",
        dead_letter_queue(queue): "redrive or purge them,",
    }
    for name, cure in cures.items():
        if step.snapshot.is_empty(name):
            continue
        leave = f"or set the annotation {SKIP} to leave it behind"
        if not (count := step.snapshot.messages(name)):
            return f'the broker does not tell how many messages queue "{name}" has; start its nodes, {leave}'
        messages = "1 message" if count == 1 else f"{count:,} messages"
        return f'queue "{name}" has {messages}; {cure} {leave}'
    return None


def _wait_for_retries(step: _Step, since: datetime | None, delays: timedelta) -> Removal | None:
    """The wait for retries that may be in a tier: those sent before `since` are all back after `delays`."""
    deadline = (since or step.now) + delays + step.patience.counts
    if not step.tiers or step.now >= deadline:
        return None
    if retries := _retries(step, deadline):
        return Removal(waiting_for=retries)
    if step.lasts(step.calm.tiers, since):
        return None
    return step.late()


def _retries(step: _Step, deadline: datetime) -> str | None:
    """That messages are in a delay tier, of which some may be for this listener."""
    busy = [tier for tier in step.tiers if not step.snapshot.is_empty(tier)]
    if not busy:
        return None
    return (
        f'retries may be on their way back from delay tier "{busy[-1]}"; '
        f"the queue goes when that is empty, {_or_at(deadline)}"
    )


def _or_at(deadline: datetime) -> str:
    return f"or at {deadline:%Y-%m-%d %H:%M:%S} UTC"
