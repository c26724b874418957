"""What a row of the table becomes on the wire."""

import json
import math
from typing import Any

from outbox.body import JSON
from outbox.wire import ATTEMPT, DEADLINE, ROUTING_KEY, TRACKING_IDS
from outbox_core.frames import LONGEST_EXPIRATION_MS
from outbox_core.publisher import Message, Unencodable


def message_of(row: Any, body: bytes, default_expiration: float | None) -> Message | Unencodable:
    """The message of a claimed row, or what is wrong with a row that somebody has written by hand."""
    if row["timestamp"] is None:
        return Unencodable("created_at is infinite; give it the time at which the message came to be")
    headers: dict[str, object] = {
        TRACKING_IDS: row["tracking_ids"],
        ROUTING_KEY: row["routing_key"],
        ATTEMPT: 1,
    }
    remaining = row["remaining"] if row["remaining"] is not None else default_expiration
    if remaining is not None and not math.isfinite(remaining):
        # From Postgres 17 on an interval may be infinite: the message never expires.
        remaining = None
    if remaining is not None:
        headers[DEADLINE] = round((row["clock"] + remaining) * 1000)
    if row["headers"] is not None:
        try:
            own = json.loads(row["headers"])
        # Both are valid for Postgres: a number of 5,000 digits, and lists nested that deep.
        except ValueError as error:
            return Unencodable(f"headers cannot be read: {error}")
        except RecursionError:
            return Unencodable("headers cannot be read: nested too deeply")
        if not isinstance(own, dict):
            return Unencodable(f"headers must be a JSON object, not {row['headers'][:40]}")
        # Of a message that was passed on with all its headers, the deadline is not this one's.
        own.pop(DEADLINE, None)
        headers = {**own, **headers}
    return Message(
        routing_key=row["routing_key"],
        body=body,
        message_id=row["message_id"],
        content_type=JSON if row["content_type"] is None else row["content_type"],
        headers=headers,
        expiration_ms=None if remaining is None else _time_to_live_ms(remaining),
        timestamp=row["timestamp"],
    )


def _time_to_live_ms(remaining_seconds: float) -> int | None:
    """The broker's part of an expiration; none if it is longer than the broker takes (49.7 days).

    The longest one would drop the message too early. The deadline in the headers holds without it.
    """
    milliseconds = max(0, round(remaining_seconds * 1000))
    return milliseconds if milliseconds <= LONGEST_EXPIRATION_MS else None
