"""Texts that both Postgres and AMQP can carry."""

from typing import Any

from outbox.body import utf8

SHORT_STRING = 255
"""How many bytes AMQP has room for in a routing key, a header's name or a content type."""
MAX_KEY_BYTES = 2000
"""How many bytes an `ordering_key` or a `timer_id` may have. An entry of a Postgres index has up to 2,704
bytes, and that of a timer also holds the routing key."""

_LIMITED_BY = {SHORT_STRING: "of AMQP", MAX_KEY_BYTES: "that an index of Postgres has room for"}


def checked_text(field: str, value: Any, limit: int | None = SHORT_STRING) -> str:
    """The value as a plain str, also of an Enum's member; an error says what `field` cannot be."""
    if not isinstance(value, str):
        raise TypeError(f"{field} must be a str, got {type(value).__name__}")
    if not value:
        raise ValueError(f"{field} must not be empty")
    # Not str(value), which of a member of `class Key(str, Enum)` is "Key.NAME".
    text = str.__str__(value)
    size = len(utf8(text, field))
    if limit is not None and size > limit:
        bound = f"{limit} {_LIMITED_BY[limit]}"
        raise ValueError(f"{field} has {size} bytes, more than the {bound}; shorten it: {text[:40]!r}…")
    if "\0" in text:
        raise ValueError(f"{field} must not contain a NUL character, which Postgres cannot store: {text!r}")
    return text
