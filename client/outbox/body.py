"""What a message's body becomes on the wire, and the content type that says so."""

import dataclasses
import datetime
import decimal
import enum
import functools
import json
import uuid
from collections.abc import Mapping, Set
from typing import Any

from outbox.model_body import dump_model, is_model, keys_of

JSON = "application/json"
BINARY = "application/octet-stream"


def encode_body(body: Any, content_type: str | None = None) -> tuple[bytes, str]:
    """The body as bytes, with its content type: the one given, or the one that follows from the body."""
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body), content_type or BINARY
    if isinstance(body, str) and content_type is not None and not is_json(content_type):
        return utf8(body, "body"), content_type
    return utf8(dump_json(body, "body"), "body"), content_type or JSON


def is_json(content_type: str) -> bool:
    """Whether a content type says JSON: `application/json`, or a type of its own built on it (`…+json`)."""
    media_type = content_type.partition(";")[0].strip().lower()
    return media_type == JSON or media_type.endswith("+json")


def dump_json(value: Any, what: str) -> str:
    """The value as JSON text; `what` names it in the TypeError or ValueError where it has none."""
    try:
        return dump_model(value) if is_model(value) else _encoder.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise kind(f"the {what} cannot be written as JSON: {reason}") from error


def utf8(text: str, what: str) -> bytes:
    """The text as bytes; `what` names it in the ValueError where it has a lone surrogate."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{what}: a lone surrogate at {error.start}, which UTF-8 cannot carry") from error


@functools.singledispatch
def _plain(value: Any) -> Any:
    """The nearest JSON value of an object that JSON does not know."""
    if is_model(value):
        return json.loads(dump_model(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        keys = keys_of(type(value))
        fields = dataclasses.fields(value)
        return {keys.get(field.name, field.name): getattr(value, field.name) for field in fields}
    kind = type(value)
    raise TypeError(f"{kind.__module__}.{kind.__qualname__} is not a JSON value")


_plain.register(uuid.UUID, str)
_plain.register(decimal.Decimal, str)  # a float would round it
_plain.register(datetime.date, lambda day: day.isoformat())
_plain.register(datetime.time, lambda time: time.isoformat())
_plain.register(datetime.timedelta, lambda duration: duration.total_seconds())
_plain.register(enum.Enum, lambda member: member.value)
_plain.register(Mapping, dict)
_plain.register(Set, list)

_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)
