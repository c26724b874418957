"""From an OutboxListener and what was seen of the world to what has to be done. Pure."""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import assert_never

from outbox.topology import Topology, TopologyError, tier_name, topology
from outbox_operator.broker.access import BrokerAccess
from outbox_operator.broker.actions import RemoveBinding
from outbox_operator.broker.removal_plan import binding_removal
from outbox_operator.broker.snapshot import BrokerProblem, ObservedBinding, Snapshot
from outbox_operator.broker.topology_plan import topology_actions
from outbox_operator.broker.user_plan import worker_permissions
from outbox_operator.children.pod_secret import BROKER_URI, SCALER_URI
from outbox_operator.children.workload import worker_workload
from outbox_operator.conditions import Finding
from outbox_operator.neighbours import described
from outbox_operator.planning.claims import Hold, Obstacle
from outbox_operator.planning.findings import (
    false,
    is_made,
    pods_user_finding,
    queue_finding,
    topology_finding,
    topology_unseen,
    true,
    unknown,
)
from outbox_operator.planning.marks import EVERYTHING, Domain, Marks
from outbox_operator.planning.plan import Plan
from outbox_operator.planning.pod_credentials import Chance, PodCredentials, entrance, users_of
from outbox_operator.resources import OutboxListener, OutboxRelay
from outbox_operator.resources.condition import ConditionStatus, ConditionType
from outbox_operator.subscriptions import exchange_of, queue_of, queues_of, subscription_of

_RELAY_READY = true(ConditionType.RELAY_READY, "Ready")


@dataclass(frozen=True, slots=True)
class ListenerView:
    """What was seen."""

    listener: OutboxListener
    """The listener."""
    relay: OutboxRelay | None
    """The relay that it names; None where there is none."""
    access: BrokerAccess | None
    """How the relay's broker is entered; None where nobody knows."""
    broker: Snapshot | BrokerProblem
    """Its virtual host, or why it cannot be seen."""
    obstacle: Obstacle | None
    """Another listener that has its queue, or may have it."""
    credentials: PodCredentials | None
    """What its pods enter with by now."""
    chance: Chance
    """For a user that is to be made."""
    has_keda: bool
    """Whether the cluster can scale by backlog."""
    is_relay_invalid: bool = False
    """Whether the relay is there after all, and cannot be read."""
    live_delays: tuple[timedelta, ...] = ()
    """The retry delays that its pods use now, whatever the spec says."""
    domain: Domain = EVERYTHING
    """What this operator manages."""
    stale: tuple[ObservedBinding, ...] = ()
    """Bindings of its queues that listeners left behind which are gone."""


def needed_topology(
    listener: OutboxListener, relay: OutboxRelay, live_delays: tuple[timedelta, ...] = ()
) -> Topology:
    """All that must exist for it and its pods, the exchange included: whoever comes first makes it."""
    wanted = subscription_of(listener)
    return topology(exchange_of(relay), [replace(wanted, delays=(*wanted.delays, *live_delays))])


def tiers_of(
    listener: OutboxListener, exchange: str, live_delays: tuple[timedelta, ...] = ()
) -> tuple[str, ...]:
    """The delay tiers that its retries wait in: those of its spec, and those that its pods use now."""
    wanted = () if listener.spec.ordered else listener.spec.retry_delays
    return tuple(dict.fromkeys(tier_name(exchange, delay) for delay in (*wanted, *live_delays)))


def plan(view: ListenerView) -> Plan:
    listener, relay = view.listener, view.relay
    if relay is None or relay.metadata.deletion_timestamp is not None:
        return Plan(_without_relay(view))
    if isinstance(view.broker, BrokerProblem) or view.access is None:
        return Plan(_without_broker(relay, view.broker))
    if view.obstacle is not None:
        return _without_queue(view, view.obstacle, view.broker)
    topology = _topology(view, relay, view.broker)
    if listener.spec.worker is None:
        return replace(topology, pods="None", retired_users=users_of(listener, view.broker))
    if topology.findings[-1].status is ConditionStatus.FALSE and not is_made(topology.findings[-1]):
        return topology
    return _with_pods(view, relay, view.access, view.broker, topology)


def _topology(view: ListenerView, relay: OutboxRelay, snapshot: Snapshot) -> Plan:
    """What concerns the queue and what belongs to it."""
    try:
        needed = needed_topology(view.listener, relay, view.live_delays)
    except TopologyError as error:
        return Plan((_RELAY_READY, false(ConditionType.TOPOLOGY_READY, "InvalidName", str(error))))
    path, installation = view.listener.metadata.path, view.domain.installation
    made = topology_actions(needed, path, snapshot, installation)
    if made.conflicts:
        return Plan((_RELAY_READY, topology_finding(made)), made.actions)
    left = (RemoveBinding(each.binding, each.properties_key) for each in view.stale)
    marks = Marks.on(queues_of(view.listener), snapshot, view.domain)
    return Plan((_RELAY_READY, queue_finding(made, marks.foreign())), (*made.actions, *left))


def _without_queue(view: ListenerView, obstacle: Obstacle, snapshot: Snapshot) -> Plan:
    """What follows from a queue that another listener has.

    If the other has marked it, nothing of this one may lead to the queue or consume from it. If not, or if
    another operator is concerned, everything stays as it is.
    """
    listener = view.listener
    findings = (_RELAY_READY, _owned_by(obstacle, listener.metadata.namespace))
    if obstacle.hold is not Hold.OWNED:
        return Plan(findings)
    return Plan(
        findings,
        lost_bindings(listener, snapshot, view.domain.installation),
        pods="None",
        loses_queue=True,
        retired_users=users_of(listener, snapshot),
    )


def lost_bindings(
    listener: OutboxListener, snapshot: Snapshot, installation: str
) -> tuple[RemoveBinding, ...]:
    """The bindings of a listener that lost its queue, but for the only one by which dead letters arrive."""
    path, (queue, letters) = listener.metadata.path, queues_of(listener)
    others = {
        each.binding for each in snapshot.bindings.get(letters, ()) if not each.is_of(path, installation)
    }
    own = binding_removal(letters, path, snapshot, installation)
    return (
        *binding_removal(queue, path, snapshot, installation),
        *(each for each in own if each.binding in others),
    )


def _with_pods(
    view: ListenerView, relay: OutboxRelay, access: BrokerAccess, snapshot: Snapshot, topology: Plan
) -> Plan:
    listener, exchange, queue = view.listener, exchange_of(relay), queue_of(view.listener)
    permissions = worker_permissions(exchange, queue, tiers_of(listener, exchange, view.live_delays))
    entered = entrance(
        listener,
        view.credentials,
        access,
        snapshot=snapshot,
        permissions=permissions,
        chance=view.chance,
    )
    findings = (*topology.findings, pods_user_finding(snapshot, access))
    if entered is None:
        return replace(topology, findings=findings)
    workload = worker_workload(
        listener,
        exchange,
        queue,
        secret_name=entered.credentials.name,
        has_ca=access.ca is not None,
        replicas=_replicas(view),
        scaler_key=SCALER_URI if SCALER_URI in entered.credentials.data else BROKER_URI,
    )
    return Plan(
        findings=findings,
        actions=(*topology.actions, *entered.actions),
        credentials=entered.credentials,
        pods=workload,
        retired_users=entered.retired_users,
    )


def _replicas(view: ListenerView) -> int | None:
    """How many workers; None where a scaler says."""
    worker = view.listener.spec.worker
    assert worker is not None  # noqa: S101 - only called with one
    if worker.autoscaling is None:
        return worker.replicas
    return None if view.has_keda else worker.replicas


def _without_relay(view: ListenerView) -> tuple[Finding, ...]:
    listener, name = view.listener, view.listener.spec.relay_ref.name
    if view.is_relay_invalid:
        reason, message = "RelayInvalid", f'OutboxRelay "{name}" cannot be read; its own status says why'
    elif view.relay is None:
        reason = "RelayMissing"
        message = (
            f'OutboxRelay "{name}" does not exist in namespace {listener.metadata.namespace}; '
            "create it, or make another OutboxListener whose spec.relayRef names one that does"
        )
    else:
        reason, message = "RelayDeleted", f'OutboxRelay "{name}" is being deleted; delete this listener too'
    unseen = "nothing is known without the relay"
    return (
        false(ConditionType.RELAY_READY, reason, message),
        unknown(ConditionType.TOPOLOGY_READY, reason, unseen),
    )


def _without_broker(relay: OutboxRelay, problem: Snapshot | BrokerProblem) -> tuple[Finding, ...]:
    if not isinstance(problem, BrokerProblem):
        problem = BrokerProblem("CredentialsInvalid", "its credentials for the broker are not known")
    message = f'OutboxRelay "{relay.metadata.name}": {problem.message}'
    return false(ConditionType.RELAY_READY, problem.reason, message), topology_unseen(problem)


def _owned_by(obstacle: Obstacle, namespace: str) -> Finding:
    queue, owner = f'queue "{obstacle.queue}"', described("OutboxListener", obstacle.owner, namespace)
    instead = "make another OutboxListener with another spec.queue and delete this one"
    match obstacle.hold:
        case Hold.OWNED | Hold.CLAIMED:
            message = f"{queue} belongs to {owner}; {instead}"
        case Hold.POSSIBLE:
            message = (
                f"{queue} may belong to {owner}, which had one of this name on a broker that is not known "
                f"now; correct the credentials of its OutboxRelay, delete it, or {instead}"
            )
        case Hold.FOREIGN:
            of = f" of installation {obstacle.installation}" if obstacle.installation else ""
            message = (
                f"{queue} belongs to {owner}{of}, which another operator manages; {instead}, "
                "or if that listener is gone, remove its bindings"
            )
        case _:
            assert_never(obstacle.hold)
    return false(ConditionType.TOPOLOGY_READY, "QueueOwnedBy", message)
