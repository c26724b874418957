"""Metadata as Go decodes it: its types, what is not of them, and what becomes of a null. Pure."""

from typing import Any

from outbox_cli.dev.admission.complaint import quoted
from outbox_cli.dev.admission.go_time import of_time
from outbox_cli.dev.admission.structure import ANYTHING, Schema, is_int64

OBJECT_META = "v1.ObjectMeta"

_FIELDS = {
    OBJECT_META: {
        "annotations": "map[string]string",
        "creationTimestamp": "v1.Time",
        "deletionGracePeriodSeconds": "int64",
        "deletionTimestamp": "v1.Time",
        "finalizers": "[]string",
        "generateName": "string",
        "generation": "int64",
        "labels": "map[string]string",
        "managedFields": "[]v1.ManagedFieldsEntry",
        "name": "string",
        "namespace": "string",
        "ownerReferences": "[]v1.OwnerReference",
        "resourceVersion": "string",
        "selfLink": "string",
        "uid": "types.UID",
    },
    "v1.OwnerReference": {
        "apiVersion": "string",
        "blockOwnerDeletion": "bool",
        "controller": "bool",
        "kind": "string",
        "name": "string",
        "uid": "types.UID",
    },
    "v1.ManagedFieldsEntry": {
        "apiVersion": "string",
        "fieldsType": "string",
        "fieldsV1": "v1.FieldsV1",
        "manager": "string",
        "operation": "v1.ManagedFieldsOperationType",
        "subresource": "string",
        "time": "v1.Time",
    },
}
"""The structs, with the types of their fields."""

_LIST, _MAP = "[]", "map[string]"
_TEXTS = {"string", "types.UID", "v1.ManagedFieldsOperationType"}
_NUMBER, _TIME, _ANYTHING = "int64", "v1.Time", "v1.FieldsV1"
_FOUND = {dict: "object", list: "array", str: "string", bool: "bool", int: "number", float: "number"}


class UndecodableError(Exception):
    """What Go says of a value that is not of its type."""


def decoded(value: Any, kind: str, struct: str = "", path: str = "") -> Any:
    """What Go makes of a value; the first that is of another type, in the order of the keys, is told."""
    match value:
        case None:
            return "" if kind in _TEXTS else {}
        case dict() if fields := _FIELDS.get(kind):
            name = kind.removeprefix("v1.")
            return {
                key: decoded(value[key], fields[key], name, f"{path}.{key}" if path else key)
                for key in sorted(fields.keys() & value.keys())
                if value[key] is not None
            }
        case dict() if kind.startswith(_MAP):
            inner = kind.removeprefix(_MAP)
            return {key: decoded(value[key], inner, struct, path) for key in sorted(value)}
        case list() if kind.startswith(_LIST):
            return [decoded(each, kind.removeprefix(_LIST), struct, path) for each in value]
        case str() if kind == _TIME and (problem := of_time(value)):
            raise UndecodableError(problem)
        case _ if _is_of(kind, value):
            return value
    wanted = "string" if kind == _TIME else kind
    place = f"struct field {struct}.{path}" if path else "value"
    raise UndecodableError(f"json: cannot unmarshal {_found(value, kind)} into Go {place} of type {wanted}")


def known_fields(kind: str) -> Schema:
    """The schema of a type, as far as it says which fields there are."""
    if fields := _FIELDS.get(kind):
        return {"properties": {key: known_fields(inner) for key, inner in fields.items()}}
    if kind.startswith(_LIST):
        return {"items": known_fields(kind.removeprefix(_LIST))}
    return ANYTHING


def _is_of(kind: str, value: Any) -> bool:
    match value:
        case _ if kind == _ANYTHING:
            return True
        case bool():
            return kind == "bool"
        case str():
            return kind in _TEXTS or kind == _TIME
        case int() | float():
            return kind == _NUMBER and is_int64(value)
        case _:
            return False


def _found(value: Any, kind: str) -> str:
    found = _FOUND.get(type(value), "string")
    # Of a number it says which, where another one would have done.
    return f"number {quoted(value)}" if (found, kind) == ("number", _NUMBER) else found
