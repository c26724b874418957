"""A value against the structural schema of a CustomResourceDefinition. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from outbox_cli.dev.admission.complaint import (
    Complaint,
    duplicate,
    invalid,
    out_of_bounds,
    quoted,
    required,
    too_long,
    too_many,
    unsupported,
    wrong_type,
)

Schema: TypeAlias = Mapping[str, Any]

TYPES = {
    dict: "object",
    list: "array",
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
}

ANYTHING: Schema = {"x-kubernetes-preserve-unknown-fields": True}
"""The schema of what has none."""


def complaints(schema: Schema, value: Any, path: str = "") -> Iterator[Complaint]:
    """All that is wrong with a value, and with what is in it."""
    found = TYPES.get(type(value), "string")
    wanted = schema.get("type", found)
    if found != wanted and not _is_also(wanted, value):
        yield wrong_type(path, wanted, found)
    if "enum" in schema and value not in schema["enum"]:
        yield unsupported(path, value, schema["enum"])
    match value:
        case dict():
            yield from _of_object(schema, value, path)
        case list():
            yield from _of_list(schema, value, path)
        case str():
            yield from _of_text(schema, value, path)
        case int() | float() if found != "boolean":
            yield from _of_number(schema, value, path)


def unknown_fields(schema: Schema, value: Any, path: str = "") -> Iterator[str]:
    """The paths of fields that nobody knows."""
    properties, others = schema.get("properties", {}), schema.get("additionalProperties")
    takes_any = schema.get("x-kubernetes-preserve-unknown-fields", False)
    match value:
        case dict():
            for key, item in value.items():
                if (known := properties.get(key, others)) is not None:
                    yield from unknown_fields(known, item, _below(path, key))
                elif not takes_any:
                    yield _below(path, key)
        case list():
            items = schema.get("items", ANYTHING if takes_any else {})
            for place, item in enumerate(value):
                yield from unknown_fields(items, item, f"{path}[{place}]")


def is_int64(value: float) -> bool:
    """Whether Go takes a number for an integer."""
    return value % 1 == 0 and -(2**63) <= value < 2**63


def _is_also(wanted: str, value: Any) -> bool:
    """Whether a number is of the other type of numbers too."""
    match value:
        case bool():
            return False
        case int():
            return wanted == "number"
        case float():
            return wanted == "integer" and is_int64(value)
        case _:
            return False


def _of_object(schema: Schema, value: dict[str, Any], path: str) -> Iterator[Complaint]:
    yield from (required(_below(path, key)) for key in schema.get("required", ()) if key not in value)
    properties, others = schema.get("properties", {}), schema.get("additionalProperties")
    for key, item in value.items():
        if (known := properties.get(key, others)) is not None:
            yield from complaints(known, item, _below(path, key))


def _of_list(schema: Schema, value: list[Any], path: str) -> Iterator[Complaint]:
    if len(value) > (most := schema.get("maxItems", len(value))):
        yield too_many(path, len(value), most)
    for place, item in enumerate(value):
        yield from complaints(schema.get("items", {}), item, f"{path}[{place}]")
    yield from _duplicates(schema, value, path)


def _duplicates(schema: Schema, value: Sequence[Any], path: str) -> Iterator[Complaint]:
    """What is in a set twice, or in a map by the same keys; that it is there once more is not told."""
    match schema.get("x-kubernetes-list-type"):
        case "set":
            identities = list(value)
        case "map":
            for place, item in enumerate(value):
                if not isinstance(item, dict | None):
                    yield invalid(f"{path}[{place}]", item, "must be an object for an array of list-type map")
                    return
            keys = schema["x-kubernetes-list-map-keys"]
            identities = [
                {key: item[key] for key in keys if key in item} for item in (each or {} for each in value)
            ]
        case _:
            return
    texts = [quoted(identity) for identity in identities]
    for place, text in enumerate(texts):
        if texts[:place].count(text) == 1:
            yield duplicate(f"{path}[{place}]", identities[place])


def _of_text(schema: Schema, value: str, path: str) -> Iterator[Complaint]:
    if len(value) > (most := schema.get("maxLength", len(value))):
        yield too_long(path, most)
    if len(value) < (least := schema.get("minLength", 0)):
        yield out_of_bounds(path, value, f"at least {least} chars long")


def _of_number(schema: Schema, value: float, path: str) -> Iterator[Complaint]:
    if value < (least := schema.get("minimum", value)):
        yield out_of_bounds(path, value, f"greater than or equal to {least}")
    if value > (most := schema.get("maximum", value)):
        yield out_of_bounds(path, value, f"less than or equal to {most}")


def _below(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
