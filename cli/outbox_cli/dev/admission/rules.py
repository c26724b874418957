"""A value against the rules of its model, each at the field that it is about. Pure."""

from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from outbox_cli.dev.admission.complaint import Complaint
from outbox_cli.dev.admission.go_duration import go_duration
from outbox_cli.dev.admission.structure import TYPES
from outbox_operator.resources.part import Part
from outbox_operator.resources.rules import Rule
from outbox_operator.resources.spans import Span

_NO_DURATION = "type conversion error from 'string' to 'google.protobuf.Duration'"


def broken_rules(model: type[Part], value: dict[str, Any], path: str = "") -> Iterator[Complaint]:
    """What rules say of a value that has the types of its schema."""
    for _, field, key in _fields(model):
        if key in value:
            yield from _of_field(field.annotation, field.metadata, value[key], _below(path, key))
    for rule in model.rules:
        if message := _message_of_part(rule, as_read(model, value)):
            yield _broken(path, value, message)


def as_read(model: type[Part], value: dict[str, Any]) -> Part:
    """A value as a rule about several of its fields reads it: it is asked also where one of them is wrong."""
    return model.model_construct(
        **{
            name: _read(field.annotation, field.metadata, value[key])
            for name, field, key in _fields(model)
            if key in value
        }
    )


def forbidden_changes(before: Part, after: Part, path: str = "") -> Iterator[Complaint]:
    """What must have stayed as it was."""
    for rule in after.rules:
        yield from _changed(rule, before, after, path)
    for name, field in type(after).model_fields.items():
        old, new, place = getattr(before, name), getattr(after, name), _below(path, field.alias or name)
        for rule in field.metadata:
            if isinstance(rule, Rule):
                yield from _changed(rule, old, new, place)
        if isinstance(old, Part) and isinstance(new, Part):
            yield from forbidden_changes(old, new, place)


def _read(kind: Any, metadata: Any, value: Any) -> Any:
    if any(isinstance(rule, Span) for rule in metadata):
        return go_duration(value)
    for alternative in (kind, *get_args(kind)):
        if isinstance(value, dict) and isinstance(alternative, type) and issubclass(alternative, Part):
            return as_read(alternative, value)
    return value


def _changed(rule: Rule, before: Any, after: Any, path: str) -> Iterator[Complaint]:
    if rule.allows is not None and not rule.allows(before, after):
        yield _broken(path, {} if isinstance(after, Part) else after, rule.message)


def _of_field(kind: Any, metadata: Any, value: Any, path: str) -> Iterator[Complaint]:
    for rule in metadata:
        if message := _message(rule, value):
            yield _broken(path, value, message)
    origin = get_origin(kind)
    if origin is Annotated:
        inner, *annotations = get_args(kind)
        yield from _of_field(inner, annotations, value, path)
    elif origin in (Union, UnionType):
        for alternative in get_args(kind):
            yield from _of_field(alternative, (), value, path)
    elif origin is tuple and isinstance(value, list):
        for place, item in enumerate(value):
            yield from _of_field(get_args(kind)[0], (), item, f"{path}[{place}]")
    elif isinstance(kind, type) and issubclass(kind, Part):
        yield from broken_rules(kind, value, path)


def _message(rule: Any, value: Any) -> str | None:
    """What a rule says of a value; None where it has nothing to say."""
    try:
        match rule:
            case Rule() if rule.holds is not None:
                rule.check(value)
            case Span():
                rule.parse(value)
    except ValueError as error:
        return str(error)
    return None


def _message_of_part(rule: Rule, part: Part) -> str | None:
    try:
        return _message(rule, part)
    except TypeError:
        # It compares durations, and one of them is none.
        return f"{_NO_DURATION} evaluating rule: {rule.message}"


def _broken(path: str, value: object, message: str) -> Complaint:
    # Of the value itself the API server shows only the type.
    return Complaint(path, f'Invalid value: "{TYPES[type(value)]}": {message}')


def _fields(model: type[Part]) -> Iterator[tuple[str, FieldInfo, str]]:
    """Each with its name in Python and in a manifest."""
    for name, field in model.model_fields.items():
        yield name, field, field.alias or name


def _below(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
