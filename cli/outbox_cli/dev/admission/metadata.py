"""The metadata of a manifest against what Kubernetes wants of any object. Pure."""

from collections.abc import Iterator
from typing import Any

from outbox_cli.dev.admission.complaint import Complaint, invalid, quoted, too_long
from outbox_cli.dev.admission.names import of_key, of_label, of_name, of_name_to_be, size

_MOST_OF_ANNOTATIONS = 256 * 1024

_OF_AN_OWNER = ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion")
_NO_OWNERS = {("v1", "Event"), ("/v1", "Event")}
_NOT_BOTH = ("orphan", "foregroundDeletion")


def of_metadata(metadata: dict[str, Any]) -> Iterator[Complaint]:
    """What is wrong with metadata that Go could decode.

    Of the rest nothing can be: the API server writes it itself, whatever a manifest says.
    """
    yield from _of_names(metadata.get("name", ""), metadata.get("generateName", ""))
    yield from _of_labels(metadata.get("labels", {}))
    yield from _of_annotations(metadata.get("annotations", {}))
    yield from _of_owners(metadata.get("ownerReferences", []))
    yield from _of_finalizers(metadata.get("finalizers", []))


def _of_names(name: str, prefix: str) -> Iterator[Complaint]:
    if prefix:
        yield from _invalid("generateName", prefix, of_name_to_be(prefix))
    if name:
        yield from _invalid("name", name, of_name(name))
    else:
        words = "Required value: name or generateName is required"
        yield Complaint("metadata.name", words, is_blocking=True)


def _of_labels(labels: dict[str, str]) -> Iterator[Complaint]:
    for key, value in labels.items():
        yield from _invalid("labels", key, of_key(key))
        yield from _invalid("labels", value, of_label(value))


def _of_annotations(annotations: dict[str, str]) -> Iterator[Complaint]:
    for key in annotations:
        yield from _invalid("annotations", key, of_key(key.lower()))
    if sum(size(key) + size(value) for key, value in annotations.items()) > _MOST_OF_ANNOTATIONS:
        yield too_long("metadata.annotations", _MOST_OF_ANNOTATIONS)


def _of_owners(references: list[dict[str, Any]]) -> Iterator[Complaint]:
    # One that is there twice is left out, with a warning.
    owners = list({quoted(each): each for each in map(_written_out, references)}.values())
    controllers = list[str]()
    for owner in owners:
        yield from _of_owner(owner)
        if owner.get("controller"):
            controllers.append(f"{owner['kind']}/{owner['name']}")
            if len(controllers) > 1:
                yield invalid(
                    "metadata.ownerReferences",
                    owners,
                    'Only one reference can have Controller set to true. Found "true" in references for '
                    f"{controllers[0]} and {controllers[-1]}",
                )


def _of_owner(owner: dict[str, Any]) -> Iterator[Complaint]:
    path = "metadata.ownerReferences"
    group, _, version = owner["apiVersion"].rpartition("/")
    if not version or "/" in group:
        yield invalid(f"{path}.apiVersion", owner["apiVersion"], "version must not be empty")
    for field in ("kind", "name", "uid"):
        if not owner[field]:
            yield invalid(f"{path}.{field}", "", "must not be empty")
    if (owner["apiVersion"], owner["kind"]) in _NO_OWNERS:
        yield invalid(path, owner, "/v1, Kind=Event is disallowed from being an owner")


def _written_out(reference: dict[str, Any]) -> dict[str, Any]:
    """As Go writes it: in the order of its struct, with all that must be there."""
    empty = dict.fromkeys(_OF_AN_OWNER[:4], "")
    return {**empty, **{field: reference[field] for field in _OF_AN_OWNER if field in reference}}


def _of_finalizers(finalizers: list[str]) -> Iterator[Complaint]:
    for finalizer in finalizers:
        yield from _invalid("finalizers", finalizer, of_key(finalizer))
    if set(_NOT_BOTH) <= set(finalizers):
        words = f"finalizer {' and '.join(_NOT_BOTH)} cannot be both set"
        yield invalid("metadata.finalizers", finalizers, words)


def _invalid(field: str, value: str, found: Iterator[str]) -> Iterator[Complaint]:
    return (invalid(f"metadata.{field}", value, words) for words in found)
