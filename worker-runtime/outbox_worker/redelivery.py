"""What a failed message becomes: the copy that waits in a delay tier, and the dead letter. Pure."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime

from outbox import wire
from outbox_core.error_text import text_of, traceback_of, type_of
from outbox_core.publisher import Message
from outbox_worker.delivery import attempt_of, routing_key_of

_BROKERS = frozenset({"x-death", "x-delivery-count", "x-acquired-count", "CC", "BCC"})
_BROKERS_PREFIXES = ("x-first-death-", "x-last-death-")
"""What the broker has written, and what it acts on. With `x-death` it would take a second pass through a tier
for a cycle and drop the message; with CC it would send copies to queues of that name."""

_DEAD_LETTERS = frozenset(
    {wire.QUEUE, wire.ATTEMPTS, wire.ERROR, wire.ERROR_TYPE, wire.TRACEBACK, wire.FAILED_AT}
)
"""What a dead letter says of its failure: no longer true once somebody has moved it back to its queue."""

_FRAMES = 12
_TRACEBACK_BYTES = 4096
_ERROR_BYTES = 1024
_SHORT_BYTES = 200


@dataclass(frozen=True, slots=True)
class Failure:
    """An attempt that has failed."""

    error: BaseException
    """What it failed with."""
    attempt: int
    """Which one it was, from 1."""
    at: datetime
    """When."""
    deadline_ms: int | None = None
    """When the message's expiration ends, in milliseconds since 1970."""


def retry_message(message: Message, queue: str, failure: Failure) -> Message:
    """What is published to a delay tier: it comes back to `queue` as the next attempt."""
    headers = {
        **_own(message),
        wire.ATTEMPT: failure.attempt + 1,
        wire.ROUTING_KEY: routing_key_of(message),
        wire.FIRST_FAILED_AT: _first_failed_at(message, failure),
    }
    if failure.deadline_ms is not None:
        headers[wire.DEADLINE] = failure.deadline_ms
    # An expiration would end the wait early; the deadline stands for it.
    return replace(message, routing_key=queue, headers=headers, expiration_ms=None)


def returned_message(message: Message, queue: str, deadline_ms: int | None) -> Message:
    """What is published to a delay tier in place of a return: it comes back as the same attempt."""
    headers = {
        **_own(message),
        wire.ATTEMPT: attempt_of(message),
        wire.ROUTING_KEY: routing_key_of(message),
    }
    if deadline_ms is not None:
        headers[wire.DEADLINE] = deadline_ms
    return replace(message, routing_key=queue, headers=headers, expiration_ms=None)


def dead_letter(message: Message, queue: str, failure: Failure, *, short: bool = False) -> Message:
    """What is published to the dead-letter exchange; `short` where the whole does not fit a frame.

    Moved back to its queue, it begins anew: with the first attempt, and without a deadline.
    """
    headers: dict[str, object] = {
        **_own(message),
        wire.ATTEMPT: 1,
        wire.ROUTING_KEY: routing_key_of(message),
        wire.QUEUE: queue,
        wire.ATTEMPTS: failure.attempt,
        wire.ERROR: _first_bytes(text_of(failure.error), _SHORT_BYTES if short else _ERROR_BYTES),
        wire.ERROR_TYPE: _first_bytes(type_of(failure.error), _SHORT_BYTES),
        wire.FIRST_FAILED_AT: _first_failed_at(message, failure),
        wire.FAILED_AT: _time(failure.at),
    }
    headers.pop(wire.DEADLINE, None)
    if not short:
        # The end of it is where the listener is.
        headers[wire.TRACEBACK] = _last_bytes(traceback_of(failure.error, _FRAMES), _TRACEBACK_BYTES)
    return replace(message, routing_key=queue, headers=headers, expiration_ms=None)


def _own(message: Message) -> dict[str, object]:
    """The headers that are the message's own."""
    return {
        name: value
        for name, value in message.headers.items()
        if name not in _BROKERS and name not in _DEAD_LETTERS and not name.startswith(_BROKERS_PREFIXES)
    }


def _first_failed_at(message: Message, failure: Failure) -> object:
    earlier = message.headers.get(wire.FIRST_FAILED_AT)
    # A dead letter that was moved back has failed for the first time when it fails again.
    return _time(failure.at) if earlier is None or failure.attempt == 1 else earlier


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _first_bytes(text: str, limit: int) -> str:
    encoded = text.encode("utf-8", "backslashreplace")
    return encoded.decode() if len(encoded) <= limit else encoded[:limit].decode("utf-8", "ignore") + "…"


def _last_bytes(text: str, limit: int) -> str:
    encoded = text.encode("utf-8", "backslashreplace")
    return encoded.decode() if len(encoded) <= limit else "…" + encoded[-limit:].decode("utf-8", "ignore")
