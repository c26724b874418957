"""What a message that was received says to a listener. Pure."""

import json

from outbox.arguments import Delivery
from outbox.wire import ATTEMPT, DEADLINE, ROUTING_KEY, TRACKING_IDS
from outbox_core.publisher import Message


def delivery_of(
    message: Message,
    queue: str,
    attempt: int,
    *,
    raw: object = None,
    connection: object = None,
    session: object = None,
) -> Delivery:
    """The delivery of a message to the listener of a queue."""
    headers = message.headers
    return Delivery(
        routing_key_of(message),
        message.body,
        message.content_type,
        _tracking_ids(headers.get(TRACKING_IDS)),
        queue,
        attempt,
        raw,
        message.message_id,
        headers,
        connection,
        session,
    )


def routing_key_of(message: Message) -> str:
    """The key it was emitted with, also after a delay tier has replaced it."""
    original = message.headers.get(ROUTING_KEY)
    return original if isinstance(original, str) else message.routing_key


def attempt_of(message: Message) -> int:
    """Which attempt this is, from 1; a message of somebody else does not say."""
    attempt = message.headers.get(ATTEMPT)
    return attempt if type(attempt) is int and attempt > 0 else 1


def deadline_of(message: Message, seen_ms: int) -> int | None:
    """When its expiration ends, in milliseconds since 1970, where it was first seen at `seen_ms`."""
    deadline = message.headers.get(DEADLINE)
    if type(deadline) is int:
        return deadline
    # Of somebody else: how long it has waited already is not to be known.
    return None if message.expiration_ms is None else seen_ms + message.expiration_ms


def _tracking_ids(text: object) -> list[str]:
    if not isinstance(text, str):
        return []
    try:
        ids = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return [each for each in ids if isinstance(each, str)] if isinstance(ids, list) else []
