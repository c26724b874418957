"""What a test looks at: the messages, and what became of them."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from outbox.body import is_json
from outbox.message import MessageRow
from outbox.testing.clock import later

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class RecordedMessage:
    """A committed message. Listeners that ask for `message` are given this in place of the AMQP library's."""

    message_id: UUID
    """What `emit` returned."""
    routing_key: str
    """The key it was emitted with."""
    body: Any
    """Its body: the JSON value, or the bytes where it is not JSON."""
    raw: bytes
    """Its body as it would be sent."""
    content_type: str
    """Its media type."""
    headers: dict[str, Any]
    """The application's headers, and those of tracing where there are any."""
    tracking_ids: list[str]
    """The ids of the emits that led to it; the last one is its own."""
    ordering_key: str | None
    """As emitted."""
    timer_id: str | None
    """As emitted."""
    expiration: timedelta | None
    """How long it may wait for a listener once it is due."""
    due: datetime
    """When it may be delivered, in UTC."""


@dataclass(frozen=True, slots=True)
class Handled:
    """A listener took a message and returned."""

    message: RecordedMessage
    """The message."""
    queue: str
    """The listener's queue."""
    attempts: int
    """How many attempts it took; 1 where nothing failed."""


@dataclass(frozen=True, slots=True)
class Retry:
    """A listener failed at a message, and will be given it again."""

    message: RecordedMessage
    """The message."""
    queue: str
    """The listener's queue."""
    attempts: int
    """How many attempts have failed so far."""
    due: datetime
    """When the next attempt is."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A listener failed at a message for good."""

    message: RecordedMessage
    """The message."""
    queue: str
    """The listener's queue; in production the message would lie in `{queue}.dlq`."""
    error: Exception
    """What the last attempt raised, with its traceback: `raise dead_letter.error` shows it."""
    attempts: int
    """How many attempts there were."""


def record_of(row: MessageRow, now: datetime) -> RecordedMessage:
    """The message that a row stands for, where `now` is the database's time."""
    return RecordedMessage(
        message_id=UUID(row.message_id),
        routing_key=row.routing_key,
        body=_body(row.body, row.content_type),
        raw=row.body,
        content_type=row.content_type,
        headers=json.loads(row.headers) if row.headers is not None else {},
        tracking_ids=json.loads(row.tracking_ids),
        ordering_key=row.ordering_key,
        timer_id=row.timer_id,
        expiration=None if row.expiration is None else timedelta(seconds=row.expiration),
        due=_due(row, now),
    )


def _body(raw: bytes, content_type: str) -> Any:
    if not is_json(content_type):
        return raw
    try:
        return json.loads(raw)
    except ValueError:  # bytes that were given a JSON content type by hand
        return raw


def _due(row: MessageRow, now: datetime) -> datetime:
    if row.due_at is not None:
        return later(_EPOCH, timedelta(seconds=row.due_at))
    return later(now.astimezone(UTC), timedelta(seconds=row.due_in or 0))
