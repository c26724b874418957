"""From an OutboxListener and what was seen of the world to what has to be done. Pure."""

from dataclasses import dataclass, replace

from outbox.topology import Topology, TopologyError, tier_name, topology
from outbox_operator.broker.access import BrokerAccess
from outbox_operator.broker.snapshot import BrokerProblem, Snapshot
from outbox_operator.broker.topology_plan import topology_actions
from outbox_operator.broker.user_plan import worker_permissions
from outbox_operator.children.workload import worker_workload
from outbox_operator.conditions import Finding
from outbox_operator.planning.findings import (
    false,
    pods_user_finding,
    topology_finding,
    topology_unseen,
    true,
    unknown,
)
from outbox_operator.planning.plan import Plan
from outbox_operator.planning.pod_credentials import Chance, PodCredentials, entrance, users_of
from outbox_operator.resources import OutboxListener, OutboxRelay
from outbox_operator.resources.condition import ConditionStatus, ConditionType
from outbox_operator.subscriptions import exchange_of, queue_of, subscription_of


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
    obstacle: tuple[str, OutboxListener] | None
    """A queue of its that another listener has."""
    credentials: PodCredentials | None
    """What its pods enter with by now."""
    chance: Chance
    """For a user that is to be made."""
    has_keda: bool
    """Whether the cluster can scale by backlog."""
    is_relay_invalid: bool = False
    """Whether the relay is there after all, and cannot be read."""


def needed_topology(listener: OutboxListener, relay: OutboxRelay) -> Topology:
    """All that must exist for it, the exchange included: whoever comes first makes it."""
    return topology(exchange_of(relay), [subscription_of(listener)])


def tiers_of(listener: OutboxListener, exchange: str) -> tuple[str, ...]:
    """The delay tiers that its retries wait in."""
    if listener.spec.ordered:
        return ()
    return tuple(dict.fromkeys(tier_name(exchange, delay) for delay in listener.spec.retry_delays))


def plan(view: ListenerView) -> Plan:
    listener, relay = view.listener, view.relay
    if relay is None or relay.metadata.deletion_timestamp is not None:
        return Plan(_without_relay(view))
    if isinstance(view.broker, BrokerProblem) or view.access is None:
        return Plan(_without_broker(relay, view.broker))
    topology = _topology(view, relay, view.broker)
    if listener.spec.worker is None:
        return replace(topology, pods="None", retired_users=users_of(listener, view.broker))
    if topology.findings[-1].status is not ConditionStatus.TRUE:
        return topology
    return _with_pods(view, relay, view.access, view.broker, topology)


def _topology(view: ListenerView, relay: OutboxRelay, snapshot: Snapshot) -> Plan:
    """What concerns the queue and what belongs to it."""
    relay_ready = true(ConditionType.RELAY_READY, "Ready")
    if view.obstacle is not None:
        return Plan((relay_ready, _owned_by(*view.obstacle)))
    try:
        needed = needed_topology(view.listener, relay)
    except TopologyError as error:
        return Plan((relay_ready, false(ConditionType.TOPOLOGY_READY, "InvalidName", str(error))))
    made = topology_actions(needed, view.listener.metadata.path, snapshot)
    return Plan((relay_ready, topology_finding(made.conflicts)), made.actions)


def _with_pods(
    view: ListenerView, relay: OutboxRelay, access: BrokerAccess, snapshot: Snapshot, topology: Plan
) -> Plan:
    listener, exchange, queue = view.listener, exchange_of(relay), queue_of(view.listener)
    permissions = worker_permissions(exchange, queue, tiers_of(listener, exchange))
    entered = entrance(
        listener,
        view.credentials,
        access,
        snapshot=snapshot,
        permissions=permissions,
        chance=view.chance,
    )
    workload = worker_workload(
        listener,
        exchange,
        queue,
        secret_name=entered.credentials.name,
        has_ca=access.ca is not None,
        replicas=_replicas(view),
    )
    return Plan(
        findings=(*topology.findings, pods_user_finding(snapshot)),
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


def _owned_by(queue: str, owner: OutboxListener) -> Finding:
    return false(
        ConditionType.TOPOLOGY_READY,
        "QueueOwnedBy",
        f'queue "{queue}" belongs to OutboxListener {owner.metadata.path}; '
        "make another OutboxListener with another spec.queue and delete this one",
    )
