"""The kinds of objects that the operator reads or writes, and where the API server keeps them."""

from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import quote

from outbox_operator.resources import API_GROUP, API_VERSION

Manifest: TypeAlias = dict[str, Any]
"""A Kubernetes object, as JSON."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of object."""

    api_version: str
    """Its group and version as a manifest spells them: `apps/v1`, or `v1` for the core."""
    kind: str
    """What a manifest calls it."""
    plural: str
    """What a path calls it."""
    namespaced: bool = True
    """Whether its objects live in namespaces."""

    @property
    def group(self) -> str:
        """Its API group; empty for the core."""
        return self.api_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        """Its version in that group."""
        return self.api_version.rpartition("/")[2]

    def __str__(self) -> str:
        return self.kind


RELAY = Kind(f"{API_GROUP}/{API_VERSION}", "OutboxRelay", "outboxrelays")
LISTENER = Kind(f"{API_GROUP}/{API_VERSION}", "OutboxListener", "outboxlisteners")
SECRET = Kind("v1", "Secret", "secrets")
POD = Kind("v1", "Pod", "pods")
EVENT = Kind("v1", "Event", "events")
DEPLOYMENT = Kind("apps/v1", "Deployment", "deployments")
POD_DISRUPTION_BUDGET = Kind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets")
NETWORK_POLICY = Kind("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies")
LEASE = Kind("coordination.k8s.io/v1", "Lease", "leases")
POD_MONITOR = Kind("monitoring.coreos.com/v1", "PodMonitor", "podmonitors")
SCALED_OBJECT = Kind("keda.sh/v1alpha1", "ScaledObject", "scaledobjects")
TRIGGER_AUTHENTICATION = Kind("keda.sh/v1alpha1", "TriggerAuthentication", "triggerauthentications")

ALL = (
    RELAY,
    LISTENER,
    SECRET,
    POD,
    EVENT,
    DEPLOYMENT,
    POD_DISRUPTION_BUDGET,
    NETWORK_POLICY,
    LEASE,
    POD_MONITOR,
    SCALED_OBJECT,
    TRIGGER_AUTHENTICATION,
)

_BY_NAME = {(kind.api_version, kind.kind): kind for kind in ALL}


def kind_of(manifest: Manifest) -> Kind:
    """The kind of a manifest, or a ValueError where the operator has no business with it."""
    api_version, name = str(manifest.get("apiVersion", "")), str(manifest.get("kind", ""))
    try:
        return _BY_NAME[api_version, name]
    except KeyError:
        raise ValueError(f"{api_version or '?'} {name or '?'} is no kind that the operator knows") from None


def path(kind: Kind, namespace: str | None, name: str = "", subresource: str = "") -> str:
    """Where an object is, or all of its kind where it has no name; None stands for all namespaces."""
    parts = ["apis" if kind.group else "api", *kind.api_version.split("/")]
    if kind.namespaced and namespace is not None:
        parts += ["namespaces", namespace]
    parts.append(kind.plural)
    parts += [part for part in (name, subresource) if part]
    return "/" + "/".join(quote(part, safe="") for part in parts)
