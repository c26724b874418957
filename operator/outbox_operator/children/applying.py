"""What of a child has to be applied, with whose name, so that the live object becomes as it should be.

Applying leaves alone what others wrote, and removes what we wrote before and do not say any more. So a
manifest is applied whole, or under another name.
"""

from dataclasses import dataclass

from outbox_operator.children.comparison import is_so
from outbox_operator.children.deployment import DEFAULT_IMAGE, INPUTS, VERSION
from outbox_operator.children.manifest import Manifest
from outbox_operator.children.names import FIELD_MANAGER, REPLICAS_MANAGER
from outbox_operator.resources import API_GROUP


@dataclass(frozen=True, slots=True)
class Apply:
    """One server-side apply."""

    manifest: Manifest
    """What is applied."""
    manager: str = FIELD_MANAGER
    """The field manager in whose name."""
    force: bool = True
    """Whether to take over what others have changed since. Where not, a conflict means: look again."""


def to_apply(desired: Manifest, live: Manifest | None) -> tuple[Apply, ...]:
    """What has to be applied, in this order; nothing where `live` is as it should be.

    Pods that an earlier operator made from the same inputs are left alone, whatever this one would do
    otherwise: an upgrade restarts nobody. When the inputs change, all of it is applied.
    """
    if live is None:
        return (Apply(desired),)
    if _has_same_inputs(desired, live):
        if _is_of_another_version(desired, live):
            return _beside_the_pods(desired, live)
        desired = _with_image_of(live, desired)
    leaves_replicas = desired["kind"] == "Deployment" and _replicas(desired) is None
    if _is_as(desired, live) and not (leaves_replicas and FIELD_MANAGER in _replicas_owners(live)):
        return ()
    handover = replicas_handover(live) if leaves_replicas else None
    return (*((handover,) if handover else ()), Apply(desired))


def replicas_handover(live: Manifest) -> Apply | None:
    """What keeps the number of replicas when we stop to say it: alone with it, we would reset it to 1.

    None where somebody else, a scaler, says it as well.
    """
    if _replicas_owners(live) - {FIELD_MANAGER}:
        return None
    # A scaler that speaks up just now wins: the conflict is its word.
    return Apply(_small(live, _notes(live), _replicas(live)), REPLICAS_MANAGER, force=False)


def without_bulk(live: Manifest) -> Manifest:
    """A live object for keeping: of who wrote which field, only who wrote the replicas."""
    entries = [
        {"manager": manager, "fieldsV1": {"f:spec": {"f:replicas": {}}}}
        for manager in sorted(_replicas_owners(live))
    ]
    return {**live, "metadata": {**live["metadata"], "managedFields": entries}}


def _beside_the_pods(desired: Manifest, live: Manifest) -> tuple[Apply, ...]:
    """The replicas and what is noted on a Deployment, and nothing that would roll its pods."""
    notes, wanted = _notes(desired), _replicas(desired)
    has_notes = notes.items() <= _annotations(live).items()
    if has_notes and wanted in (None, _replicas(live)):
        return ()
    if wanted is None and REPLICAS_MANAGER in _replicas_owners(live):
        # Said in this name before, and reset where it is not said again.
        wanted = _replicas(live)
    return (Apply(_small(live, notes, wanted), REPLICAS_MANAGER),)


def _small(live: Manifest, notes: dict[str, str], replicas: int | None) -> Manifest:
    # With the uid, an object that was deleted meanwhile is not made anew from this.
    metadata = {field: live["metadata"][field] for field in ("name", "namespace", "uid")}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {**metadata, **({"annotations": notes} if notes else {})},
        **({"spec": {"replicas": replicas}} if replicas is not None else {}),
    }


def _is_as(desired: Manifest, live: Manifest) -> bool:
    # What a list gives has neither kind nor apiVersion.
    return all(is_so(desired[part], live.get(part)) for part in desired.keys() - {"apiVersion", "kind"})


def _has_same_inputs(desired: Manifest, live: Manifest) -> bool:
    return INPUTS in _annotations(desired) and _annotations(desired)[INPUTS] == _annotations(live).get(INPUTS)


def _is_of_another_version(desired: Manifest, live: Manifest) -> bool:
    return _annotations(live).get(VERSION) not in (None, _annotations(desired)[VERSION])


def _with_image_of(live: Manifest, desired: Manifest) -> Manifest:
    """With the default image that the pods were made with, which need not be the one of today."""
    earlier = _annotations(live).get(DEFAULT_IMAGE)
    if earlier is None or DEFAULT_IMAGE not in _annotations(desired):
        return desired
    spec = desired["spec"]
    template = spec["template"]
    [container] = template["spec"]["containers"]
    pod = {**template["spec"], "containers": [{**container, "image": earlier}]}
    return {
        **desired,
        "metadata": {
            **desired["metadata"],
            "annotations": {**_annotations(desired), DEFAULT_IMAGE: earlier},
        },
        "spec": {**spec, "template": {**template, "spec": pod}},
    }


def _replicas_owners(live: Manifest) -> set[str]:
    """Who last said how many replicas there are."""
    found: set[str] = set()
    entries = live["metadata"].get("managedFields")
    for entry in entries if isinstance(entries, list) else ():
        match entry:
            # Whoever may write the object may write these too, and an entry need not name a manager.
            case {"manager": str() as manager, "fieldsV1": {"f:spec": {"f:replicas": _}}}:
                found.add(manager)
    return found


def _replicas(deployment: Manifest) -> int | None:
    replicas: int | None = deployment.get("spec", {}).get("replicas")
    return replicas


def _notes(manifest: Manifest) -> dict[str, str]:
    """Our annotations that do not tell how the pods were made."""
    return {
        name: value
        for name, value in _annotations(manifest).items()
        if name.startswith(f"{API_GROUP}/") and name not in (INPUTS, VERSION, DEFAULT_IMAGE)
    }


def _annotations(manifest: Manifest) -> dict[str, str]:
    annotations: dict[str, str] = manifest["metadata"].get("annotations", {})
    return annotations
