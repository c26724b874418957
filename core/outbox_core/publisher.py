"""What is published, what came of it, and what a publisher is: the vocabulary of both implementations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from outbox_core.broker_errors import BrokerLostError


@dataclass(frozen=True, slots=True)
class RareProperties:
    """What a message of somebody else may carry beside the properties of ours."""

    content_encoding: str | None = None
    """How the body is packed, as `gzip`."""
    priority: int | None = None
    """From 0 to 255, for a queue with priorities."""
    correlation_id: str | None = None
    """What it answers."""
    reply_to: str | None = None
    """Where an answer is awaited."""
    type: str | None = None
    """What the application calls it."""
    app_id: str | None = None
    """The application that sent it."""
    cluster_id: str | None = None
    """Of no meaning any more, and passed on like the others."""
    user_id: str | None = None
    """Who sent it. Never sent on: the broker closes the channel where it is not the connection's own user."""
    delivery_mode: int | None = 2
    """How it was sent: 2 is persistent. Never sent on: what we send is persistent."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message as it is on the wire; what we send is always persistent."""

    routing_key: str
    """The topic, of at most 255 bytes."""
    body: bytes
    """Passed on as it is."""
    message_id: str | None = None
    """What a consumer tells duplicates by, of at most 255 bytes; None only in a message of somebody else."""
    timestamp: int | None = None
    """When it came to be, in seconds since 1970; None only in a message of somebody else."""
    content_type: str | None = None
    """How to read the body."""
    headers: Mapping[str, object] = field(default_factory=dict)
    """Texts, whole numbers of 64 bits, floats, booleans, None, and lists and dictionaries of these.

    In a message of somebody else also `Decimal`, `datetime`, `bytearray`, and `bytes` that are no UTF-8.
    """
    expiration_ms: int | None = None
    """How long a queue may keep it, in milliseconds, up to 2³²-1 (49 days)."""
    rare: RareProperties | None = None
    """The other properties, where a message of somebody else has any."""


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The broker has it: written to the disk of every queue that it belongs to."""


@dataclass(frozen=True, slots=True)
class Nacked:
    """A queue refused it, as a full one with `x-overflow=reject-publish` does, or the broker failed."""


@dataclass(frozen=True, slots=True)
class Returned:
    """No queue is bound for it: the broker has thrown it away."""

    reply_code: int
    """312 is NO_ROUTE."""
    reply_text: str
    """The broker's words."""


@dataclass(frozen=True, slots=True)
class Unencodable:
    """It cannot be put on the wire or is larger than the broker takes: it was never sent."""

    reason: str
    """What is wrong with it, and what to do."""


Outcome: TypeAlias = Confirmed | Nacked | Returned | Unencodable

CONFIRMED = Confirmed()
NACKED = Nacked()


class Answers(Protocol):
    """What the broker has answered for the messages of one `send`. Late answers still arrive."""

    @property
    def outcomes(self) -> Sequence[Outcome | None]:
        """One for each message, in their order; None if it has no answer yet."""

    @property
    def lost(self) -> BrokerLostError | None:
        """Why the missing answers will never come; None while the channel is open."""


class Publisher(Protocol):
    """A channel of its own to publish on.

    Calls to `publish` may overlap, on one publisher and on several of one broker. A publisher is used up by
    the first `BrokerLostError`: close it, and ask the broker for another.
    """

    @property
    def is_usable(self) -> bool:
        """Whether `publish` may still succeed."""

    @property
    def transport(self) -> object:
        """The connection that its channel is on."""

    async def publish(self, exchange: str, messages: Sequence[Message], timeout: float) -> list[Outcome]:  # noqa: ASYNC109 - the deadline is part of the outcome
        """Send all messages in their order, and return what came of each after at most `timeout` seconds.

        Raises `BrokerLostError` where the channel is gone before everything is known, a subclass of it where
        the cause is known, and `PublishTimeoutError` after `timeout`. Any of the messages may then have
        arrived.
        """

    async def send(
        self,
        exchange: str,
        messages: Sequence[Message],
        timeout: float,  # noqa: ASYNC109 - the deadline is part of the outcome
        stall_seconds: float | None = None,
    ) -> Answers:
        """Send all messages in their order, and wait for their answers.

        Waiting ends early after `timeout` seconds, after `stall_seconds` without any answer, and when the
        channel is lost. Missing answers are not an error: while the channel is open they may still come.
        Raises `BrokerLostError` only if nothing was sent.
        """

    async def aclose(self) -> None:
        """Close the channel; whatever is still waiting raises `BrokerLostError`."""
