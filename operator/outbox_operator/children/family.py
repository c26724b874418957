"""All the children of a resource: which there should be, and which should be no more."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from outbox_operator.children.autoscaling import autoscaling_of, scaled_object, trigger_authentication
from outbox_operator.children.budget import disruption_budget, wants_budget
from outbox_operator.children.deployment import deployment
from outbox_operator.children.manifest import Manifest
from outbox_operator.children.names import Owner, child_name
from outbox_operator.children.network_policy import network_policy
from outbox_operator.children.pod_monitor import pod_monitor
from outbox_operator.children.workload import Workload
from outbox_operator.resources import OutboxListener, OutboxRelay
from outbox_operator.subscriptions import queue_of

ChildId: TypeAlias = tuple[str, str]
"""The kind and the name of a child, in its owner's namespace."""


@dataclass(frozen=True, slots=True)
class Facilities:
    """What the cluster offers and whoever installed the operator wants."""

    pod_monitors: bool = False
    """There are PodMonitors."""
    keda: bool = False
    """There are ScaledObjects and TriggerAuthentications."""
    network_policies: bool = False
    """Network policies are wanted."""


@dataclass(frozen=True, slots=True)
class Children:
    """The children of a resource, but for its Secrets, whose content is not known here."""

    wanted: tuple[Manifest, ...]
    """Those that should be, in the order in which they are applied."""
    unwanted: tuple[ChildId, ...]
    """Those that must not be, of the kinds that the cluster knows. They go first: a scaler that is no longer
    wanted would undo the replicas that are."""


def children(workload: Workload, facilities: Facilities) -> Children:
    """The children that a workload needs."""
    wanted = tuple(_wanted(workload, facilities))
    there = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in wanted}
    possible = no_children(workload.owner, facilities).unwanted
    return Children(wanted, tuple(child for child in possible if child not in there))


def no_children(owner: Owner, facilities: Facilities) -> Children:
    """The children of a listener without workers."""
    name = child_name(owner)
    return Children((), tuple((kind, name) for kind in _kinds(owner, facilities)))


def _wanted(workload: Workload, facilities: Facilities) -> Iterator[Manifest]:
    owner = workload.owner
    if facilities.network_policies:
        yield network_policy(owner)
    yield deployment(workload)
    if wants_budget(workload):
        yield disruption_budget(workload)
    if facilities.pod_monitors and workload.serves_http:
        yield pod_monitor(owner)
    autoscaling = autoscaling_of(owner)
    if isinstance(owner, OutboxListener) and autoscaling and workload.replicas is None:
        yield trigger_authentication(workload)
        yield scaled_object(workload, autoscaling, queue_of(owner))


def _kinds(owner: Owner, facilities: Facilities) -> Iterator[str]:
    match owner:
        case OutboxRelay():
            pass
        case OutboxListener():
            if facilities.keda:
                yield from ("ScaledObject", "TriggerAuthentication")
        case _:
            assert_never(owner)
    if facilities.pod_monitors:
        yield "PodMonitor"
    yield from ("PodDisruptionBudget", "Deployment", "NetworkPolicy")
