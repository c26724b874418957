"""What a user may choose about the pods that the operator makes."""

from typing import Annotated, Any, TypeAlias

from pydantic import Field, WithJsonSchema

from outbox_operator.resources.part import Part
from outbox_operator.resources.references import SecretRef
from outbox_operator.resources.rules import ListType

# The types of Kubernetes itself are not repeated: the API server checks them when the Deployment is applied.
_ANY_OBJECT: dict[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def _keyed_by(key: str) -> dict[str, Any]:
    """A list in which two writers each own their items, told apart by `key`."""
    item = {**_ANY_OBJECT, "required": [key], "properties": {key: {"type": "string", "minLength": 1}}}
    return {
        "type": "array",
        "items": item,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": [key],
    }


_LIST: dict[str, Any] = {"type": "array", "items": _ANY_OBJECT, "x-kubernetes-list-type": "atomic"}

Object: TypeAlias = dict[str, Any]
"""An object of a type that is Kubernetes' own."""


class Template(Part):
    """The pods' template: whatever is not said here is the operator's choice."""

    labels: dict[str, str] = Field(default_factory=dict)
    """Labels of the pods, beside the operator's own."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Annotations of the pods, beside the operator's own."""
    resources: Annotated[Object, WithJsonSchema(_ANY_OBJECT)] = Field(default_factory=dict)
    """Requests and limits of the container (core/v1 ResourceRequirements)."""
    env: Annotated[tuple[Object, ...], WithJsonSchema(_keyed_by("name"))] = ()
    """Environment variables of the container (core/v1 EnvVar), beside the operator's own."""
    node_selector: dict[str, str] = Field(default_factory=dict)
    """Labels that a node must have."""
    tolerations: Annotated[tuple[Object, ...], WithJsonSchema(_LIST)] = ()
    """Taints of nodes that are put up with (core/v1 Toleration)."""
    affinity: Annotated[Object, WithJsonSchema(_ANY_OBJECT)] = Field(default_factory=dict)
    """Which nodes, and which pods as neighbours, are wanted or shunned (core/v1 Affinity)."""
    topology_spread_constraints: Annotated[tuple[Object, ...], WithJsonSchema(_LIST)] = ()
    """How the pods spread over zones and nodes (core/v1 TopologySpreadConstraint)."""
    priority_class_name: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    """The PriorityClass of the pods."""
    service_account_name: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    """The ServiceAccount of the pods, for its pull secrets or for a cloud's identity; the namespace's default
    where it is left out. Its token is not mounted."""
    image_pull_secrets: Annotated[
        tuple[SecretRef, ...], Field(max_length=32), ListType("map", keys=("name",))
    ] = ()
    """Secrets in this namespace with which nodes pull the image; those of the ServiceAccount where there are
    none."""
    volumes: Annotated[tuple[Object, ...], WithJsonSchema(_keyed_by("name"))] = ()
    """Volumes of the pods (core/v1 Volume), beside the operator's own."""
    volume_mounts: Annotated[tuple[Object, ...], WithJsonSchema(_keyed_by("mountPath"))] = ()
    """Where the container sees the volumes (core/v1 VolumeMount)."""
