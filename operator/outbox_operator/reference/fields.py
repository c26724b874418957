"""The fields of a schema, as a reader wants to know them."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Schema = dict[str, Any]

_DURATION = re.compile(r"must be a duration from (\S+) to ([^\s,;]+)(, or Forever)?")


@dataclass(frozen=True, slots=True)
class Field:
    """One field of an object."""

    name: str
    """As a manifest spells it."""
    schema: Schema
    """What the API server knows of it."""
    is_required: bool
    """Whether a manifest must have it."""

    @property
    def type(self) -> str:
        """What it may be, with its bounds."""
        return _type(self.schema)

    @property
    def default(self) -> str:
        """What it is where a manifest leaves it out."""
        if self.is_required:
            return "required"
        # Of an object the fields tell, each in its own row.
        if "default" not in self.schema or self.schema["type"] == "object":
            return ""
        return f"`{json.dumps(self.schema['default'])}`"

    @property
    def description(self) -> str:
        return str(self.schema.get("description", ""))


@dataclass(frozen=True, slots=True)
class Object:
    """An object in a manifest, and those inside it."""

    path: str
    """Where it is: `spec.database`."""
    fields: tuple[Field, ...]
    """Its fields, in the order of the types."""
    rules: tuple[tuple[str, str], ...]
    """What the API server refuses beside wrong types and bounds: each path, with what it says."""


def objects(path: str, schema: Schema) -> Iterator[Object]:
    """An object of a schema, and after it those of its fields that have fields themselves."""
    required = schema.get("required", [])
    fields = tuple(Field(name, each, name in required) for name, each in schema["properties"].items())
    yield Object(path, fields, tuple(_rules(path, schema)))
    for field in fields:
        inner = field.schema.get("items", field.schema)
        if _has_fields(inner):
            brackets = "[]" if "items" in field.schema else ""
            yield from objects(f"{path}.{field.name}{brackets}", inner)


def _has_fields(schema: Schema) -> bool:
    """Of our own: where a type of Kubernetes is embedded, only its key is in the schema."""
    return "properties" in schema and "x-kubernetes-preserve-unknown-fields" not in schema


def _rules(path: str, schema: Schema) -> Iterator[tuple[str, str]]:
    """Those of an object, and those of its fields that are no objects with a table of their own."""
    for rule in schema.get("x-kubernetes-validations", []):
        yield path, rule["message"]
    for name, each in schema["properties"].items():
        yield from _own_rules(f"{path}.{name}", each)


def _own_rules(path: str, schema: Schema) -> Iterator[tuple[str, str]]:
    if _has_fields(schema):
        return
    for rule in schema.get("x-kubernetes-validations", []):
        # The bounds of a duration are in its type.
        if not _DURATION.match(rule["message"]):
            yield path, rule["message"]
    if "items" in schema:
        yield from _own_rules(f"{path}[]", schema["items"])


def _type(schema: Schema) -> str:
    match schema:
        case {"enum": [*values]}:
            found = " or ".join(f"`{value}`" for value in values)
        case {"type": "array", "items": items}:
            most = f" at most {schema['maxItems']}:" if "maxItems" in schema else ""
            found = f"list of{most} {_type(items)}"
        case {"type": "object", "additionalProperties": values}:
            found = f"map of {_type(values)}"
        case {"type": "integer"}:
            found = f"integer{_bounds(schema.get('minimum'), schema.get('maximum'))}"
        case {"type": "string"}:
            found = _text(schema)
        case _:
            found = str(schema["type"])
    return found


def _text(schema: Schema) -> str:
    if schema.get("format") == "date-time":
        return "time"
    messages = (rule["message"] for rule in schema.get("x-kubernetes-validations", []))
    if found := next(filter(None, map(_DURATION.match, messages)), None):
        least, most, forever = found.groups()
        return f"duration, {least} to {most}{', or `Forever`' if forever else ''}"
    bounds = _bounds(schema.get("minLength"), schema.get("maxLength"))
    return f"text{bounds} characters" if bounds else "text"


def _bounds(least: int | None, most: int | None) -> str:
    match (least, most):
        case (None, None):
            return ""
        case (None, _):
            return f", at most {most:,}"
        case (_, None):
            return f", at least {least:,}"
        case _:
            return f", {least:,} to {most:,}"
