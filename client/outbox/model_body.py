"""Pydantic models as the JSON that the same model reads back.

What pydantic writes by default is not always what the model accepts: aliases, computed fields in a model that
refuses extra fields, `Json` fields. Nothing here imports pydantic; the models bring it along.
"""

import dataclasses
import functools
import json
import math
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any


def is_model(value: object) -> bool:
    """True for an instance of a pydantic model."""
    return hasattr(type(value), "model_dump_json")


def dump_model(model: Any) -> str:
    """The model as JSON text; a ValueError if a float in it has no JSON form and would become null."""
    kind: type = type(model)
    form = _form(kind)
    text: str = model.model_dump_json(round_trip=form.round_trip)
    if form.is_default and "null" not in text:
        return text
    value = json.loads(text)
    if "null" in text:
        _refuse_lost_floats(model.model_dump(mode=form.floats_mode, round_trip=form.round_trip), value, "")
    if not form.renames:
        return text
    return json.dumps(_renamed(model, value), ensure_ascii=False, separators=(",", ":"))


@functools.lru_cache(maxsize=1024)
def keys_of(kind: type) -> Mapping[str, str]:
    """The key to write for each field of a model or pydantic dataclass: one that its validation reads.

    It is the key that pydantic itself writes, unless validation would not read that. A field whose only alias
    is a path into nested data keeps it too: no flat key is read there.
    """
    fields, config, written = _fields(kind), _config(kind), _written_keys(kind)
    by_name = config.get("validate_by_name") or config.get("populate_by_name") or False
    by_alias = config.get("validate_by_alias", True)
    aliases = {name: _aliases(info.validation_alias) if by_alias else [] for name, info in fields.items()}
    # An alias is looked up before the name: a name that is also another field's alias would be read twice.
    if any({*aliases[name]} & ({*fields} - {name}) for name in fields):
        by_name = False
    keys = {}
    for name, info in fields.items():
        readable = [*aliases[name]]
        if by_name or info.validation_alias is None:
            readable.append(name)
        keys[name] = written[name] if written[name] in readable or not readable else readable[0]
    return keys


@dataclasses.dataclass(frozen=True, slots=True)
class _Form:
    """How instances of one model class are written."""

    renames: bool
    """True if some key has to differ from the one that pydantic writes."""
    round_trip: bool
    """True if pydantic's `round_trip` is needed: it omits computed fields, and encodes `Json` ones again."""
    floats_mode: str
    """The mode of a dump that keeps NaN: `json` does so for a field of type float, and not for one of any
    type. But only there may the application itself have written null instead."""

    @property
    def is_default(self) -> bool:
        return not self.renames and not self.round_trip


@functools.lru_cache(maxsize=1024)
def _form(kind: type) -> _Form:
    nodes = list(_nodes(getattr(kind, "__pydantic_core_schema__", {})))
    kinds = {kind, *(node["cls"] for node in nodes if isinstance(node.get("cls"), type))}
    has_json = any(node.get("type") == "json" for node in nodes)
    return _Form(
        renames=any(_written_keys(one) != keys_of(one) for one in kinds),
        round_trip=has_json or any(_computed(one) and _keeps_extra(one) for one in kinds),
        floats_mode="json" if any(map(_writes_json_only, nodes)) else "python",
    )


def _writes_json_only(node: Mapping[str, Any]) -> bool:
    """True for a function that writes a value to JSON only."""
    is_function = str(node.get("type")).startswith("function-")
    return is_function and str(node.get("when_used")).startswith("json")


def _nodes(schema: Any) -> Iterator[Mapping[str, Any]]:
    """All the mappings inside a core schema, which refers to itself by name and so has an end."""
    if isinstance(schema, Mapping):
        yield schema
        schema = [nested for key, nested in schema.items() if key not in ("metadata", "default")]
    if isinstance(schema, list | tuple):
        for nested in schema:
            yield from _nodes(nested)


def _fields(kind: type) -> Mapping[str, Any]:
    fields: Mapping[str, Any] = getattr(kind, "__pydantic_fields__", None) or getattr(
        kind, "model_fields", {}
    )
    return fields


def _config(kind: type) -> Mapping[str, Any]:
    config: Mapping[str, Any] = getattr(kind, "model_config", None) or getattr(
        kind, "__pydantic_config__", {}
    )
    return config


def _written_keys(kind: type) -> Mapping[str, str]:
    """The key that pydantic writes for each field."""
    by_alias = _config(kind).get("serialize_by_alias")
    return {
        name: (info.serialization_alias if by_alias else None) or name for name, info in _fields(kind).items()
    }


def _computed(kind: type) -> bool:
    decorators = getattr(kind, "__pydantic_decorators__", None)
    return bool(getattr(decorators, "computed_fields", None))


def _keeps_extra(kind: type) -> bool:
    """True if a computed field would be refused, or kept as an extra one."""
    return _config(kind).get("extra") in ("forbid", "allow")


def _aliases(alias: Any) -> list[str]:
    """The plain keys of a validation alias: of an `AliasPath` only one without a further step."""
    if isinstance(alias, str):
        return [alias]
    choices = getattr(alias, "choices", None) or ([] if alias is None else [alias])
    keys = []
    for choice in choices:
        path = getattr(choice, "path", [choice])
        if len(path) == 1 and isinstance(path[0], str):
            keys.append(path[0])
    return keys


def _renamed(value: Any, dumped: Any) -> Any:
    """`dumped`, the JSON value of `value`, with the keys that each model in it reads."""
    if getattr(type(value), "__pydantic_root_model__", False):
        return _renamed(value.root, dumped)
    match dumped:
        case dict() if isinstance(value, Mapping) and len(value) == len(dumped):
            pairs = zip(value.values(), dumped.items(), strict=True)
            return {key: _renamed(inner, plain) for inner, (key, plain) in pairs}
        case dict() if is_model(value) or dataclasses.is_dataclass(value):
            return _renamed_fields(value, dumped)
        case list() if isinstance(value, Sequence | Set) and len(value) == len(dumped):
            return [_renamed(inner, plain) for inner, plain in zip(value, dumped, strict=True)]
        case _:
            return dumped


def _renamed_fields(value: Any, dumped: dict[str, Any]) -> dict[str, Any]:
    kind: type = type(value)
    if _has_own_form(kind):
        return dumped
    keys = keys_of(kind)
    names = {written: name for name, written in _written_keys(kind).items()}
    result = {}
    for key, plain in dumped.items():
        name = names.get(key, key)
        result[keys.get(name, key)] = _renamed(getattr(value, name, None), plain)
    return result


def _has_own_form(kind: type) -> bool:
    """True if the application has its own way to write it, and not only around the one of pydantic.

    A validator that sees the keys first may read those that a serializer around pydantic's writes.
    """
    decorators = getattr(kind, "__pydantic_decorators__", None)
    written = {each.info.mode for each in getattr(decorators, "model_serializers", {}).values()}
    read = {each.info.mode for each in getattr(decorators, "model_validators", {}).values()}
    return "plain" in written or (bool(written) and not read <= {"after"})


def _refuse_lost_floats(value: Any, written: Any, place: str) -> None:
    """Compare a dump that keeps NaN and infinity with what was written, which may have null instead."""
    if written is None:
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(
                f"{place or 'the value'} is {value}, which JSON does not have; give a finite number or None, "
                "or set ser_json_inf_nan='constants' in the model's config to send it all the same"
            )
    elif isinstance(value, Mapping) and isinstance(written, Mapping):
        for (name, inner), plain in zip(value.items(), written.values(), strict=False):
            _refuse_lost_floats(inner, plain, f"{place}.{name}" if place else str(name))
    elif isinstance(value, list | tuple | Set) and isinstance(written, list):
        for position, (inner, plain) in enumerate(zip(value, written, strict=False)):
            _refuse_lost_floats(inner, plain, f"{place}[{position}]")
