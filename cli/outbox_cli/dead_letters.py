"""What a dead letter says of its failure, which are meant, and what the listener is sent again. Pure."""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from outbox import wire
from outbox.topology import dead_letter_queue
from outbox_core.publisher import Message
from outbox_worker.redelivery import Failure, retry_message

_SUFFIX = dead_letter_queue("")
_COUNTED_BY_BROKER = frozenset({"x-delivery-count", "x-acquired-count"})
"""Headers that differ each time a message is delivered."""
_NOT_OWN = _COUNTED_BY_BROKER | frozenset(
    {
        wire.QUEUE,
        wire.ATTEMPT,
        wire.ATTEMPTS,
        wire.ERROR,
        wire.ERROR_TYPE,
        wire.TRACEBACK,
        wire.FIRST_FAILED_AT,
        wire.FAILED_AT,
        wire.ROUTING_KEY,
        wire.TRACKING_IDS,
    }
)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that a listener could not handle."""

    message_id: str | None
    """Its id on the wire."""
    routing_key: str
    """The key it was emitted with."""
    error_type: str
    """The class of the error; where the broker itself gave up, its reason, as `delivery_limit`."""
    error: str | None
    """What the error says."""
    traceback: str | None
    """Where it was raised."""
    attempts: int | None
    """How many attempts there were."""
    first_failed_at: datetime | None
    """When the first attempt failed."""
    failed_at: datetime | None
    """When the last attempt failed."""
    message: Message
    """As it is in the queue."""

    @property
    def fingerprint(self) -> int:
        """The same each time this process reads the letter, and another for every other letter."""
        headers = sorted(
            (name, repr(value))
            for name, value in self.message.headers.items()
            if name not in _COUNTED_BY_BROKER
        )
        return hash((self.message_id, self.message.body, tuple(headers)))

    @property
    def own_headers(self) -> dict[str, object]:
        """The headers that are the application's, or tell what the broker did with the message."""
        return {name: value for name, value in self.message.headers.items() if name not in _NOT_OWN}


@dataclass(frozen=True, slots=True)
class Selection:
    """The dead letters that are meant: those that fit all of it."""

    ids: frozenset[str] = frozenset()
    """With one of these message ids; any where empty."""
    error: str | None = None
    """With this type of error: with its module, or without."""
    failed_before: datetime | None = None
    """Whose last attempt failed earlier."""
    failed_since: datetime | None = None
    """Whose last attempt failed then or later."""
    among: AbstractSet[int] | None = None
    """With one of these fingerprints."""

    @classmethod
    def at(
        cls,
        now: datetime,
        *,
        ids: Iterable[str] = (),
        error: str | None = None,
        older_than: timedelta | None = None,
        newer_than: timedelta | None = None,
    ) -> "Selection":
        """With ages that count from `now`."""
        before, since = (None if span is None else now - span for span in (older_than, newer_than))
        return cls(frozenset(ids), error, before, since)

    def means(self, letter: DeadLetter) -> bool:
        """Whether it fits. A letter that does not say when it failed has no age."""
        if self.ids and letter.message_id not in self.ids:
            return False
        if self.error is not None and self.error not in _names(letter.error_type):
            return False
        if self.failed_before is not None and not (
            letter.failed_at and letter.failed_at < self.failed_before
        ):
            return False
        if self.failed_since is not None and not (letter.failed_at and letter.failed_at >= self.failed_since):
            return False
        return self.among is None or letter.fingerprint in self.among


@dataclass(slots=True)
class ErrorCount:
    """The dead letters with one type of error."""

    count: int = 0
    """How many."""
    oldest: datetime | None = None
    """When the first of them failed."""
    newest: datetime | None = None
    """When the last of them failed."""

    def add(self, failed_at: datetime | None) -> None:
        self.count += 1
        if failed_at is not None:
            self.oldest = min(self.oldest or failed_at, failed_at)
            self.newest = max(self.newest or failed_at, failed_at)


@dataclass(slots=True)
class Census:
    """Dead letters by their type of error."""

    errors: dict[str, ErrorCount] = field(default_factory=dict)
    """The counts of each type."""

    def add(self, letter: DeadLetter) -> None:
        self.errors.setdefault(letter.error_type, ErrorCount()).add(letter.failed_at)

    def by_count(self) -> list[tuple[str, ErrorCount]]:
        """The most frequent type first."""
        return sorted(self.errors.items(), key=lambda item: (-item[1].count, item[0]))


def queues_of(name: str) -> tuple[str, str]:
    """The listener's queue and its dead-letter queue, of which one is named."""
    queue = name.removesuffix(_SUFFIX)
    return queue, dead_letter_queue(queue)


def dead_letter_of(message: Message) -> DeadLetter:
    """What the headers of a dead letter say: those of the worker, or else what the broker has noted."""
    headers, death = message.headers, _last_death(message)
    error_type = _text(headers.get(wire.ERROR_TYPE)) or _text(death.get("reason")) or "unknown"
    attempts = headers.get(wire.ATTEMPTS, headers.get(wire.ATTEMPT))
    return DeadLetter(
        message_id=message.message_id,
        routing_key=_routing_key(message, death),
        error_type=error_type,
        error=_text(headers.get(wire.ERROR)),
        traceback=_text(headers.get(wire.TRACEBACK)),
        attempts=attempts if isinstance(attempts, int) else None,
        first_failed_at=_moment(headers.get(wire.FIRST_FAILED_AT)),
        failed_at=_moment(headers.get(wire.FAILED_AT)) or _moment(death.get("time")),
        message=message,
    )


def redriven(letter: DeadLetter, queue: str, now: datetime) -> Message:
    """What is published for the listener: the first attempt at the same message, with the id that it had.

    The inbox of an `exactly_once` or `deduplicate` listener knows the message only where it was handled after
    all, and skips it then, as it should.
    """
    # A retry after no attempt at all: the worker knows which headers the broker and the failure have left.
    again = retry_message(letter.message, queue, Failure(Exception(), attempt=0, at=now))
    headers = {**again.headers, wire.ROUTING_KEY: letter.routing_key}
    for name in (wire.FIRST_FAILED_AT, wire.DEADLINE):
        headers.pop(name, None)
    return replace(again, headers=headers)


def _names(error_type: str) -> tuple[str, str]:
    return error_type, error_type.rpartition(".")[2]


def _last_death(message: Message) -> Mapping[str, object]:
    deaths = message.headers.get("x-death")
    # The latest comes first.
    last = deaths[0] if isinstance(deaths, list) and deaths else {}
    return last if isinstance(last, Mapping) else {}


def _routing_key(message: Message, death: Mapping[str, object]) -> str:
    if original := _text(message.headers.get(wire.ROUTING_KEY)):
        return original
    keys = death.get("routing-keys")
    return (_text(keys[0]) if isinstance(keys, list) and keys else None) or message.routing_key


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _moment(value: object) -> datetime | None:
    if isinstance(value, datetime):
        return value if value.tzinfo else value.replace(tzinfo=UTC)
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
