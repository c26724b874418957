"""A message as the application gives it, and the row that it becomes."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeAlias

from outbox.body import dump_json, encode_body, utf8
from outbox.headers import MAX_HEADERS_SIZE, encode_headers
from outbox.history import get_tracking_ids
from outbox.text import MAX_KEY_BYTES, checked_text

Duration: TypeAlias = int | float | timedelta
Eta: TypeAlias = datetime | timedelta | int | float

MAX_BODY_SIZE = 16 * 1024 * 1024
"""The default limit of RabbitMQ 4 for one message."""
MAX_EXPIRATION = timedelta(days=3650)
"""The same as in the custom resource of a relay."""
MAX_TRACKING_IDS = 100
"""How long a history of emits may get: the first one and the last ones of a longer one are kept."""

# Python's calendar has the years 1 to 9999, Postgres' more: what is due then can be read with every driver.
_FIRST_MOMENT = datetime(1, 1, 1, tzinfo=UTC).timestamp()
_LAST_MOMENT = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()
_LONGEST_AGO = timedelta(days=700_000)
_LONGEST_FROM_NOW = timedelta(days=2_500_000)


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
    max_headers_size: int = MAX_HEADERS_SIZE,
) -> MessageRow:
    """Check a message and encode it; a TypeError or ValueError says what is wrong with which field.

    This is the definition of a valid message: Postgres stores each of them, and the relay can send it.
    """
    routing_key = checked_text("routing_key", message.routing_key)
    given_type = message.content_type
    body, content_type = encode_body(
        message.body, None if given_type is None else checked_text("content_type", given_type)
    )
    if len(body) > max_body_size:
        raise ValueError(f"body has {len(body)} bytes, more than max_body_size ({max_body_size})")
    headers, headers_size = encode_headers(message.headers)
    tracking_ids = _tracking_ids(message_id)
    size = headers_size + len(utf8(tracking_ids, "tracking ids"))
    if size > max_headers_size:
        raise ValueError(
            f"headers and tracking ids take {size} bytes, more than max_headers_size ({max_headers_size}); "
            "move some of them into the body"
        )
    expiration = message.expiration if message.expiration is not None else default_expiration
    due_at, due_in = _due(message.eta)
    return MessageRow(
        message_id,
        routing_key,
        body,
        content_type,
        headers,
        tracking_ids,
        _key("ordering_key", message.ordering_key),
        _key("timer_id", message.timer_id),
        expiration_seconds(expiration),
        due_at,
        due_in,
    )


def expiration_seconds(expiration: Duration | None) -> float | None:
    """An expiration in seconds; a ValueError for one that no message can have."""
    if expiration is None:
        return None
    seconds = expiration.total_seconds() if isinstance(expiration, timedelta) else expiration
    _check_number("expiration", seconds)
    if seconds < 0:
        raise ValueError(f"expiration must not be negative, got {expiration!r}")
    if seconds < 0.001:
        raise ValueError(
            f"expiration must be at least 1 ms, or the message is never sent, got {expiration!r}; "
            "leave it out for none"
        )
    if seconds > MAX_EXPIRATION.total_seconds():
        raise ValueError(
            f"expiration must be at most {MAX_EXPIRATION.days} days, got {expiration!r:.40}; "
            "leave it out for none"
        )
    return float(seconds)


def _key(field: str, value: Any) -> str | None:
    return None if value is None else checked_text(field, value, MAX_KEY_BYTES)


def _tracking_ids(message_id: str) -> str:
    history = get_tracking_ids()
    if not history:
        return f'["{message_id}"]'
    if any("\0" in each for each in history):
        raise ValueError("tracking ids must not contain a NUL character, which Postgres cannot store")
    if len(history) >= MAX_TRACKING_IDS:
        # A timer that sets itself again would have a longer history each time, until no header can hold it.
        history = [history[0], *history[len(history) - MAX_TRACKING_IDS + 2 :]]
    return dump_json([*history, message_id], "tracking ids")


def _due(eta: Eta | None) -> tuple[float | None, float | None]:
    if eta is None:
        return None, None
    if isinstance(eta, datetime):
        return _moment(eta), None
    if isinstance(eta, timedelta):
        seconds = eta.total_seconds()
    else:
        _check_number("eta", eta, "a datetime, a timedelta or milliseconds")
        # An int may be too large to become a float.
        seconds = max(-1e15, min(eta, 1e15)) / 1000
    if seconds > _LONGEST_FROM_NOW.total_seconds():
        raise ValueError(
            f"eta must be at most {_LONGEST_FROM_NOW.days} days from now; give a datetime for a later year"
        )
    if seconds < -_LONGEST_AGO.total_seconds():
        raise ValueError(f"eta must be at most {_LONGEST_AGO.days} days ago; leave it out for now")
    return None, seconds


def _moment(eta: datetime) -> float:
    """The time since 1970; one that its time zone or rounding puts outside of the calendar is its end."""
    try:
        moment = eta.timestamp()
    except (OverflowError, ValueError):
        moment = _LAST_MOMENT if eta.year > 1970 else _FIRST_MOMENT
    return min(max(moment, _FIRST_MOMENT), _LAST_MOMENT)


def _check_number(field: str, value: Any, expected: str = "seconds or a timedelta") -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{field} must be {expected}, got {type(value).__name__}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{field} must be finite, got {value!r}")
