"""The application's headers as JSON text, checked for what jsonb can store and an AMQP table can carry."""

import json
from collections.abc import Mapping
from typing import Any

from outbox.body import dump_json, utf8
from outbox.text import SHORT_STRING, checked_text
from outbox.tracing import trace_headers

MAX_HEADERS_SIZE = 112 * 1024
"""RabbitMQ takes all headers and properties of a message in one frame, of 128 KiB by default. The rest is for
those that the relay, the worker (a dead letter has a traceback) and the broker add."""
MAX_HEADER_DEPTH = 100
"""How deep lists and dictionaries may be nested; the relay and the worker read and write them recursively."""
_INT64 = 2**63


def encode_headers(headers: Mapping[str, Any] | None) -> tuple[str | None, int]:
    """The headers and those of the current trace, None for none, and how many bytes they take in AMQP."""
    merged: dict[str, Any] = trace_headers()
    if headers is not None:
        if not isinstance(headers, Mapping):
            raise TypeError(f"headers must be a mapping, got {type(headers).__name__}")
        merged.update((checked_text("header name", name), value) for name, value in headers.items())
    if not merged:
        return None, 0
    text = dump_json(merged, "headers")
    utf8(text, "headers")
    # What is checked is what the relay will read, and not the Enum or the dataclass that it was written from.
    size = 0
    for name, value in json.loads(text).items():
        try:
            size += 1 + len(name.encode()) + _size(value, 1)
        except ValueError as error:
            raise ValueError(f"header {name!r}: {error}") from None
    return text, size


def _size(value: Any, depth: int) -> int:
    """How many bytes an AMQP table takes for the value; a ValueError if it cannot."""
    match value:
        case str():
            if "\0" in value:
                raise ValueError("it must not contain a NUL character, which Postgres cannot store")
            return 5 + len(value.encode())
        case bool():
            return 2
        case int() | float():
            # jsonb writes a large float as an integer: 1e30 is read back with 31 digits.
            if not -_INT64 <= value < _INT64:
                raise ValueError(f"{value!r:.40} has more than the 64 bits of AMQP; pass it as text")
            return 9
        case None:
            return 1
    if depth > MAX_HEADER_DEPTH:
        raise ValueError(f"it is nested more than {MAX_HEADER_DEPTH} deep; move it into the body")
    if isinstance(value, list):
        return 5 + sum(_size(nested, depth + 1) for nested in value)
    return 5 + sum(_name_size(name) + _size(nested, depth + 1) for name, nested in value.items())


def _name_size(name: str) -> int:
    size = len(name.encode())
    if size > SHORT_STRING:
        raise ValueError(
            f"the name {name[:40]!r}… in it has {size} bytes, more than the {SHORT_STRING} of AMQP"
        )
    if "\0" in name:
        raise ValueError(f"the name {name!r} in it must not contain a NUL character")
    return 1 + size
