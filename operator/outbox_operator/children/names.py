"""What the children of a resource are called, the labels by which they are found, and whose they are."""

import hashlib
from collections.abc import Mapping
from typing import TypeAlias, assert_never

from outbox_operator.children.manifest import Manifest
from outbox_operator.resources import API_GROUP, API_VERSION, OutboxListener, OutboxRelay

Owner: TypeAlias = OutboxRelay | OutboxListener
"""A resource that has children."""

FIELD_MANAGER = "outbox-operator"
"""Who applies the children."""
REPLICAS_MANAGER = "outbox-operator-replicas"
"""Who applies the replicas, and what is noted on a Deployment, where its pods have to stay as they are."""

NAME_LABEL = "app.kubernetes.io/name"
INSTANCE_LABEL = "app.kubernetes.io/instance"
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
MANAGED_BY = "outbox-operator"
MANAGED_BY_SELECTOR = f"{MANAGED_BY_LABEL}={MANAGED_BY}"
"""Finds everything that the operator made."""

LONGEST_NAME = 54
"""Room for what is made from a name: KEDA puts `keda-hpa-` before it and wants a label's value, a ReplicaSet
and its pods put their hashes behind it."""
LONGEST_LABEL = 63
_HASH_DIGITS = 8


def kind_of(owner: Owner) -> str:
    """Its kind in a manifest."""
    match owner:
        case OutboxRelay():
            return "OutboxRelay"
        case OutboxListener():
            return "OutboxListener"
        case _:
            assert_never(owner)


def component_of(owner: Owner) -> str:
    """What its pods are: `relay` or `worker`."""
    match owner:
        case OutboxRelay():
            return "relay"
        case OutboxListener():
            return "worker"
        case _:
            assert_never(owner)


def child_name(owner: Owner) -> str:
    """What its Deployment is called, and whatever else there is one of."""
    return fitted(f"{owner.metadata.name}-{component_of(owner)}", LONGEST_NAME)


def labels_of(owner: Owner) -> dict[str, str]:
    """The labels of its children and their pods, and the selector of the pods."""
    return {
        NAME_LABEL: f"outbox-{component_of(owner)}",
        INSTANCE_LABEL: fitted(owner.metadata.name, LONGEST_LABEL),
        MANAGED_BY_LABEL: MANAGED_BY,
    }


def selector_text(owner: Owner) -> str:
    """The selector of its pods as a query spells it, and status.selector with it."""
    return ",".join(f"{label}={value}" for label, value in sorted(labels_of(owner).items()))


def child_metadata(
    owner: Owner, name: str | None = None, annotations: Mapping[str, str] | None = None
) -> Manifest:
    """The metadata of a child, whose name is that of the Deployment where no other is given."""
    return {
        "name": name or child_name(owner),
        "namespace": owner.metadata.namespace,
        "labels": labels_of(owner),
        **({"annotations": dict(annotations)} if annotations else {}),
        "ownerReferences": [owner_reference(owner)],
    }


def owner_reference(owner: Owner) -> Manifest:
    """What makes Kubernetes delete a child after its owner."""
    return {
        "apiVersion": f"{API_GROUP}/{API_VERSION}",
        "kind": kind_of(owner),
        "name": owner.metadata.name,
        "uid": owner.metadata.uid,
        "controller": True,
        # True would need the right to write the owner's finalizers, and would make a deletion wait.
        "blockOwnerDeletion": False,
    }


def is_child(live: Manifest, owner: Owner) -> bool:
    """Whether an object that has a child's name may be applied to: it is one, or one that was orphaned.

    Anything else of that name is somebody's own, and applying would take it over.
    """
    metadata = live["metadata"]
    controllers = [each["uid"] for each in metadata.get("ownerReferences", ()) if each.get("controller")]
    if controllers:
        return controllers == [owner.metadata.uid]
    labels: dict[str, str] = metadata.get("labels", {})
    return labels_of(owner).items() <= labels.items()


def is_former_child(live: Manifest, owner: Owner) -> bool:
    """Whether an object is a child of a deleted resource with the owner's name, not yet garbage-collected."""
    references = live["metadata"].get("ownerReferences", ())
    controllers = [(each["kind"], each["name"]) for each in references if each.get("controller")]
    return controllers == [(kind_of(owner), owner.metadata.name)]


def fitted(text: str, longest: int) -> str:
    """The text where it is short enough, else its beginning and a hash of all of it."""
    if len(text) <= longest:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:_HASH_DIGITS]
    # A name's parts begin and end with a letter or digit.
    return f"{text[: longest - _HASH_DIGITS - 1].rstrip('-.')}-{digest}"
