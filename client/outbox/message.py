"""A message as the application gives it, and the row that it becomes."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeAlias

from outbox.body import dump_json, encode_body, utf8
from outbox.history import get_tracking_ids
from outbox.tracing import trace_headers

Duration: TypeAlias = int | float | timedelta
Eta: TypeAlias = datetime | timedelta | int | float

MAX_BODY_SIZE = 16 * 1024 * 1024
"""The default limit of RabbitMQ 4 for one message."""
SHORT_STRING = 255
"""How many bytes AMQP has room for in a routing key, a header's name or a content type."""
MAX_TRACKING_IDS = 100
"""How long a history of emits may get: the first one and the last ones of a longer one are kept."""
_INT64 = 2**63


@dataclass(frozen=True, slots=True)
class OutboxMessage:
    """One message for `bulk_emit`; the fields are those of `emit`."""

    routing_key: str
    """Which listeners get it, by the topic rules of RabbitMQ."""
    body: Any
    """A pydantic model, a dataclass, bytes, or anything JSON can carry."""
    expiration: Duration | None = None
    """How long it may wait for a listener, in seconds or as a timedelta; None for the emitter's default."""
    eta: Eta | None = None
    """When it is due: a datetime (naive is local time), a timedelta, or milliseconds from now."""
    headers: Mapping[str, Any] | None = None
    """AMQP headers of the application's own."""
    ordering_key: str | None = None
    """Messages with the same key leave in the order in which they were emitted."""
    timer_id: str | None = None
    """At most one pending message of a routing key has this id."""
    content_type: str | None = None
    """Instead of the one that follows from the body."""


class MessageRow(NamedTuple):
    """The parameters of an INSERT, in the order of `outbox.inserts`; plain values that every driver knows."""

    message_id: str
    routing_key: str
    body: bytes
    content_type: str
    headers: str | None
    """JSON text."""
    tracking_ids: str
    """JSON text; the last one is the message's own id."""
    ordering_key: str | None
    timer_id: str | None
    expiration: float | None
    """Seconds."""
    due_at: float | None
    """Seconds since the epoch, for an absolute `eta`."""
    due_in: float | None
    """Seconds from the server's now, for a relative `eta`."""


PLAIN_FIELDS = ("message_id", "routing_key", "body", "content_type", "tracking_ids")
"""The fields that every message has; most messages have no other."""


def row_of(
    message: OutboxMessage,
    message_id: str,
    *,
    default_expiration: Duration | None = None,
    max_body_size: int = MAX_BODY_SIZE,
) -> MessageRow:
    """Check a message and encode it; a TypeError or ValueError says what is wrong with which field."""
    check_text("routing_key", message.routing_key)
    if message.content_type is not None:
        check_text("content_type", message.content_type)
    body, content_type = encode_body(message.body, message.content_type)
    if len(body) > max_body_size:
        raise ValueError(f"body has {len(body)} bytes, more than max_body_size ({max_body_size})")
    expiration = message.expiration if message.expiration is not None else default_expiration
    due_at, due_in = _due(message.eta)
    return MessageRow(
        message_id,
        message.routing_key,
        body,
        content_type,
        _headers(message.headers),
        _tracking_ids(message_id),
        _optional_text("ordering_key", message.ordering_key),
        _optional_text("timer_id", message.timer_id),
        expiration_seconds(expiration),
        due_at,
        due_in,
    )


def expiration_seconds(expiration: Duration | None) -> float | None:
    """An expiration in seconds; a ValueError for a negative one."""
    if expiration is None:
        return None
    seconds = expiration.total_seconds() if isinstance(expiration, timedelta) else expiration
    _check_number("expiration", seconds)
    if seconds < 0:
        raise ValueError(f"expiration must not be negative, got {expiration!r}")
    return float(seconds)


def check_text(field: str, value: Any, limit: int | None = SHORT_STRING) -> None:
    """Refuse what neither Postgres nor AMQP could keep as this text."""
    if not isinstance(value, str):
        raise TypeError(f"{field} must be a str, got {type(value).__name__}")
    if not value:
        raise ValueError(f"{field} must not be empty")
    size = len(utf8(value, field))
    if limit is not None and size > limit:
        raise ValueError(f"{field} has {size} bytes, more than the {limit} of AMQP: {value[:40]!r}…")
    if "\0" in value:
        raise ValueError(f"{field} must not contain a NUL character, which Postgres cannot store: {value!r}")


def _optional_text(field: str, value: Any) -> str | None:
    if value is None:
        return None
    check_text(field, value, limit=None)
    return str(value)


def _tracking_ids(message_id: str) -> str:
    history = get_tracking_ids()
    if not history:
        return f'["{message_id}"]'
    if len(history) >= MAX_TRACKING_IDS:
        # A timer that sets itself again would have a longer history each time, until no header can hold it.
        history = [history[0], *history[len(history) - MAX_TRACKING_IDS + 2 :]]
    return dump_json([*history, message_id], "tracking ids")


def _due(eta: Eta | None) -> tuple[float | None, float | None]:
    if eta is None:
        return None, None
    if isinstance(eta, datetime):
        return eta.timestamp(), None
    if isinstance(eta, timedelta):
        return None, eta.total_seconds()
    _check_number("eta", eta, "a datetime, a timedelta or milliseconds")
    return None, eta / 1000


def _check_number(field: str, value: Any, expected: str = "seconds or a timedelta") -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{field} must be {expected}, got {type(value).__name__}")
    if not math.isfinite(value):
        raise ValueError(f"{field} must be finite, got {value!r}")


def _headers(headers: Mapping[str, Any] | None) -> str | None:
    merged: dict[str, Any] = trace_headers()
    if headers is not None:
        if not isinstance(headers, Mapping):
            raise TypeError(f"headers must be a mapping, got {type(headers).__name__}")
        for name in headers:
            check_text("header name", name)
        merged.update(headers)
    if not merged:
        return None
    _check_header(merged)
    text = dump_json(merged, "headers")
    utf8(text, "headers")
    return text


def _check_header(value: Any) -> None:
    """Refuse what jsonb or an AMQP table could not keep, wherever it is nested."""
    if isinstance(value, Mapping):
        for name, nested in value.items():
            _check_header(name)
            _check_header(nested)
    elif isinstance(value, list | tuple):
        for nested in value:
            _check_header(nested)
    elif isinstance(value, str) and "\0" in value:
        raise ValueError(f"headers must not contain a NUL character, which Postgres cannot store: {value!r}")
    elif isinstance(value, int) and not -_INT64 <= value < _INT64:
        raise ValueError(f"headers must not contain {value}: AMQP has integers of 64 bits")
