"""Whether a manifest would be taken, and else what a person reads. Pure."""

from collections.abc import Iterator
from typing import Any, TypeAlias

from outbox_cli.dev.admission.complaint import Complaint
from outbox_cli.dev.admission.metadata import of_metadata
from outbox_cli.dev.admission.rules import as_read, broken_rules, forbidden_changes
from outbox_cli.dev.admission.structure import TYPES, Schema, complaints, unknown_fields
from outbox_operator.children.names import Owner
from outbox_operator.crds import DEFINITIONS
from outbox_operator.resources import API_GROUP, API_VERSION

Manifest: TypeAlias = dict[str, Any]

MODELS = {definition.kind: definition.model for definition in DEFINITIONS}
"""The models, by kind."""

_OF_METADATA = (
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "name",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
)


def _schema_of(definition: Any) -> Schema:
    [version] = definition.manifest()["spec"]["versions"]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    # Of what is in these the API server has schemas of its own.
    anything = {"x-kubernetes-preserve-unknown-fields": True}
    metadata = {"type": "object", "properties": dict.fromkeys(_OF_METADATA, anything)}
    return {**schema, "properties": {**schema["properties"], "metadata": metadata}}


_SCHEMAS = {definition.kind: _schema_of(definition) for definition in DEFINITIONS}


def refusals(manifest: Manifest, before: Owner | None = None) -> list[str]:
    """What is wrong with a manifest of ours, one line each; nothing where it would be taken.

    With `before`, the resource as it is, what may not be changed must be as it was.
    """
    kind, version = str(manifest.get("kind", "")), str(manifest.get("apiVersion", ""))
    if kind not in MODELS or version != f"{API_GROUP}/{API_VERSION}":
        return [f'no matches for kind "{kind}" in version "{version}"']
    # The operator alone writes a status: whatever a manifest says of it is not looked at.
    manifest = {key: value for key, value in manifest.items() if key != "status"}
    unknown = ", ".join(
        f'unknown field "{path}"' for path in sorted(unknown_fields(_SCHEMAS[kind], manifest))
    )
    undecoded = [
        *_undecodable(manifest.get("metadata")),
        *([f"strict decoding error: {unknown}"] if unknown else []),
    ]
    if undecoded:
        return [f'{kind} in version "{API_VERSION}" cannot be handled as a {kind}: {undecoded[0]}']
    name = manifest["metadata"].get("name", "")
    said = dict.fromkeys(str(each) for each in _complaints(kind, without_nulls(manifest), before))
    return [f'The {kind} "{name}" is invalid: {words}' for words in said]


def without_nulls(value: Any) -> Any:
    """As the API server reads it: a field that is null is one that was left out."""
    match value:
        case dict():
            return {key: without_nulls(item) for key, item in value.items() if item is not None}
        case list():
            return [without_nulls(item) for item in value]
        case _:
            return value


def _complaints(kind: str, manifest: Manifest, before: Owner | None) -> Iterator[Complaint]:
    model = MODELS[kind]
    found = [*of_metadata(manifest["metadata"]), *complaints(_SCHEMAS[kind], manifest)]
    yield from found
    if any(complaint.is_blocking for complaint in found):
        return
    yield from broken_rules(model, manifest)
    if before is not None:
        yield from forbidden_changes(before, as_read(model, manifest))


def _undecodable(metadata: Any) -> Iterator[str]:
    """What in the metadata is of another type than Go wants."""
    if not isinstance(metadata, dict):
        yield _unmarshalled(metadata, ".metadata", "v1.ObjectMeta")
        return
    texts = [(field, metadata.get(field)) for field in ("name", "namespace")]
    for field in ("labels", "annotations"):
        match metadata.get(field):
            case dict(values):
                texts += ((field, value) for value in values.values())
            case None:
                pass
            case other:
                yield _unmarshalled(other, f"ObjectMeta.{field}", "map[string]string")
    for field, value in texts:
        if value is not None and not isinstance(value, str):
            yield _unmarshalled(value, f"ObjectMeta.{field}", "string")


def _unmarshalled(value: Any, field: str, wanted: str) -> str:
    found = TYPES.get(type(value), "string")
    found = {"integer": "number", "boolean": "bool"}.get(found, found)
    return f"json: cannot unmarshal {found} into Go struct field {field} of type {wanted}"
