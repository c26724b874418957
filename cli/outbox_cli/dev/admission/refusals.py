"""Whether a manifest would be taken, and else what a person reads. Pure."""

from collections.abc import Iterator
from typing import Any, TypeAlias

from outbox_cli.dev.admission.complaint import Complaint, quoted
from outbox_cli.dev.admission.go_decoding import OBJECT_META, UndecodableError, decoded, known_fields
from outbox_cli.dev.admission.metadata import of_metadata
from outbox_cli.dev.admission.rules import as_read, broken_rules, forbidden_changes
from outbox_cli.dev.admission.structure import Schema, complaints, is_int64, unknown_fields
from outbox_operator.children.names import Owner
from outbox_operator.crds import DEFINITIONS
from outbox_operator.resources import API_GROUP, API_VERSION

Manifest: TypeAlias = dict[str, Any]

MODELS = {definition.kind: definition.model for definition in DEFINITIONS}
"""The models, by kind."""


def _schema_of(definition: Any) -> Schema:
    [version] = definition.manifest()["spec"]["versions"]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return {**schema, "properties": {**schema["properties"], "metadata": known_fields(OBJECT_META)}}


_SCHEMAS = {definition.kind: _schema_of(definition) for definition in DEFINITIONS}


def refusals(manifest: Manifest, before: Owner | None = None) -> list[str]:
    """What is wrong with a manifest of ours, one line each; nothing where it would be taken.

    With `before`, the resource as it is, what may not be changed must be as it was.
    """
    if not isinstance(kind := manifest.get("kind"), str):
        problem = "not set" if kind is None else "isn't string type"
        return [f"error validating data: kind {problem}"]
    version = str(manifest.get("apiVersion", ""))
    if kind not in MODELS or version != f"{API_GROUP}/{API_VERSION}":
        return [f'no matches for kind "{kind}" in version "{version}"']
    try:
        metadata = decoded(manifest.get("metadata"), OBJECT_META)
        _check_fields(kind, manifest)
    except UndecodableError as error:
        return [f'{kind} in version "{API_VERSION}" cannot be handled as a {kind}: {error}']
    name, prefix = metadata.get("name", ""), metadata.get("generateName", "")
    if prefix and not name:
        return [f"from {prefix}: cannot use generate name with apply"]
    # The operator alone writes a status: what else a manifest says of it is not looked at.
    known = {key: value for key, value in manifest.items() if key != "status"}
    found = _complaints(kind, {**without_nulls(known), "metadata": metadata}, before)
    said = dict.fromkeys(map(str, found))
    return [f"The {kind} {quoted(name)} is invalid: {words}" for words in said]


def without_nulls(value: Any) -> Any:
    """As the API server reads it: a null is a field that was left out, and no integer is huge."""
    match value:
        case dict():
            return {key: without_nulls(item) for key, item in value.items() if item is not None}
        case list():
            return [without_nulls(item) for item in value]
        case int() if not is_int64(value):
            return float(value)
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


def _check_fields(kind: str, manifest: Manifest) -> None:
    # Those of the metadata are found first.
    found = unknown_fields(_SCHEMAS[kind], manifest)
    if unknown := sorted(found, key=lambda path: (not path.startswith("metadata."), path)):
        paths = ", ".join(f'unknown field "{path}"' for path in unknown)
        raise UndecodableError(f"strict decoding error: {paths}")
