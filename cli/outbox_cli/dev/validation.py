"""What an API server would refuse in a manifest, by the models and the generated CRD schemas. Pure."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, TypeAlias

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from outbox_operator.children.names import Owner
from outbox_operator.crds import DEFINITIONS
from outbox_operator.resources import API_GROUP, API_VERSION
from outbox_operator.resources.part import Part
from outbox_operator.resources.rules import Rule

Manifest: TypeAlias = dict[str, Any]
Path: TypeAlias = tuple[str | int, ...]

MODELS = {definition.kind: definition.model for definition in DEFINITIONS}
"""The models, by kind."""

_SCHEMAS: dict[str, Mapping[str, Any]] = {
    definition.kind: definition.manifest()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"][
        "spec"
    ]
    for definition in DEFINITIONS
}
"""The schemas of `spec`, by kind."""

_FIELDS = ("apiVersion", "kind", "metadata", "spec", "status")
_METADATA = (
    "annotations", "creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "finalizers",
    "generateName", "generation", "labels", "managedFields", "name", "namespace", "ownerReferences",
    "resourceVersion", "selfLink", "uid",
)  # fmt: skip

_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_WORD = "[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
_LONGEST_NAME = 253
_LONGEST_WORD = 63


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is wrong with a manifest."""

    path: Path
    """The field; empty for the whole resource."""
    message: str
    """What is wrong with it."""

    def __str__(self) -> str:
        parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.path)
        field = "".join(parts).removeprefix(".")
        return f"{field}: {self.message}" if field else self.message


def problems(manifest: Manifest, previous: Owner | None = None) -> list[Problem]:
    """All that is wrong with a manifest of ours, and with the change from `previous`."""
    kind, version = manifest.get("kind"), manifest.get("apiVersion")
    if version != f"{API_GROUP}/{API_VERSION}":
        return [Problem(("apiVersion",), f"must be {API_GROUP}/{API_VERSION}, and not {version!r}")]
    if not isinstance(kind, str) or kind not in MODELS:
        return [Problem(("kind",), f"must be {' or '.join(MODELS)}, and not {kind!r}")]
    found = list(_unknown(manifest, _FIELDS, ()))
    metadata = manifest.get("metadata")
    if not isinstance(metadata, dict):
        return [*found, Problem(("metadata",), "must be an object with a name")]
    found += _metadata_problems(metadata)
    found += _schema_problems(_SCHEMAS[kind], normalised(manifest.get("spec")), ("spec",))
    try:
        resource = parsed(manifest)
    except ValidationError as error:
        known = {problem.path for problem in found}
        found += (each for each in map(_from_pydantic, error.errors()) if each.path not in known)
    else:
        if previous is not None:
            found += _change_problems(previous, resource, ())
    return found


def parsed(manifest: Manifest) -> Owner:
    """The resource that a manifest describes, without what only a cluster writes about it."""
    metadata = manifest["metadata"]
    kept = {key: metadata.get(key) for key in ("name", "namespace", "labels", "annotations")}
    described = {"metadata": kept, "spec": manifest.get("spec")}
    # JSON, since in strict mode it alone has arrays that are tuples.
    resource: Owner = MODELS[manifest["kind"]].model_validate_json(
        json.dumps(normalised(described)), strict=True
    )
    return resource


def normalised(value: Any) -> Any:
    """A value as the API server stores it: null is a field left out, and 2.0 is an integer."""
    match value:
        case dict():
            return {key: normalised(item) for key, item in value.items() if item is not None}
        case list():
            return [normalised(item) for item in value]
        case float() if value.is_integer():
            return int(value)
        case _:
            return value


def _unknown(value: Mapping[str, Any], known: tuple[str, ...], path: Path) -> Iterator[Problem]:
    for field in value.keys() - set(known):
        similar = get_close_matches(field, known, n=1)
        hint = f"; did you mean {similar[0]}?" if similar else ""
        yield Problem((*path, field), f"unknown field{hint}")


def _metadata_problems(metadata: Mapping[str, Any]) -> Iterator[Problem]:
    yield from _unknown(metadata, _METADATA, ("metadata",))
    name = metadata.get("name")
    if name is None:
        yield Problem(("metadata", "name"), "is required")
    elif isinstance(name, str) and not _is_subdomain(name):
        text = (
            f"must have at most {_LONGEST_NAME} lower case letters, digits, '-' and '.', and begin and end "
            "with a letter or digit"
        )
        yield Problem(("metadata", "name"), text)
    for field in ("labels", "annotations"):
        texts = metadata.get(field)
        if not isinstance(texts, dict):
            continue
        for key, value in texts.items():
            if not _is_qualified_name(key):
                yield Problem(("metadata", field, key), "the key must be a name, such as example.com/name")
            elif field == "labels" and isinstance(value, str) and value and not _is_word(value):
                text = (
                    f"must have at most {_LONGEST_WORD} letters, digits, '-', '_' and '.', and begin and end "
                    "with a letter or digit"
                )
                yield Problem(("metadata", field, key), text)


def _is_subdomain(text: str) -> bool:
    return len(text) <= _LONGEST_NAME and re.fullmatch(_SUBDOMAIN, text) is not None


def _is_word(text: str) -> bool:
    return len(text) <= _LONGEST_WORD and re.fullmatch(_WORD, text) is not None


def _is_qualified_name(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    return _is_word(name) and (not slash or _is_subdomain(prefix.lower()))


def _schema_problems(schema: Mapping[str, Any], value: Any, path: Path) -> Iterator[Problem]:
    """What only the schema forbids: the models accept fields of newer versions, and any part of a pod."""
    properties, items = schema.get("properties", {}), schema.get("items", {})
    match value:
        case dict():
            takes_any = schema.get("x-kubernetes-preserve-unknown-fields", False)
            if not takes_any and "additionalProperties" not in schema:
                yield from _unknown(value, tuple(properties), path)
            for key in schema.get("required", ()):
                if key not in value:
                    yield Problem((*path, key), "is required")
                elif takes_any and not (isinstance(value[key], str) and value[key]):
                    yield Problem((*path, key), "must be a string that is not empty")
            for key in properties.keys() & value.keys():
                yield from _schema_problems(properties[key], value[key], (*path, key))
        case list():
            yield from _duplicates(schema, value, path)
            for place, item in enumerate(value):
                yield from _schema_problems(items, item, (*path, place))


def _duplicates(schema: Mapping[str, Any], items: list[Any], path: Path) -> Iterator[Problem]:
    keys = schema.get("x-kubernetes-list-map-keys")
    if keys is None and schema.get("x-kubernetes-list-type") != "set":
        return
    seen = list[Any]()
    for place, item in enumerate(items):
        identity = [item.get(key) for key in keys] if keys and isinstance(item, dict) else item
        if identity in seen:
            yield Problem((*path, place), "is in the list twice")
        seen.append(identity)


def _from_pydantic(error: ErrorDetails) -> Problem:
    match error["type"]:
        case "missing":
            message = "is required"
        case "value_error":
            message = str(error["ctx"]["error"])
        case _:
            message = error["msg"][:1].lower() + error["msg"][1:]
    return Problem(error["loc"], message)


def _change_problems(previous: Part, current: Part, path: Path) -> Iterator[Problem]:
    """What must have stayed as it was."""
    yield from _forbidden(current.rules, previous, current, path)
    for name, field in type(current).model_fields.items():
        old, new, below = getattr(previous, name), getattr(current, name), (*path, field.alias or name)
        yield from _forbidden([rule for rule in field.metadata if isinstance(rule, Rule)], old, new, below)
        if isinstance(old, Part) and isinstance(new, Part):
            yield from _change_problems(old, new, below)


def _forbidden(rules: Any, previous: Any, current: Any, path: Path) -> Iterator[Problem]:
    for rule in rules:
        if rule.allows is not None and not rule.allows(previous, current):
            yield Problem(path, rule.message)
