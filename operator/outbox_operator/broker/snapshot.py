"""A virtual host as it was at one time: its exchanges, queues, bindings and users, as values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from outbox.topology import Binding
from outbox_operator.broker.actions import Permissions

OWNER = "outbox.dev/owner"
"""The argument of a binding that tells whose it is; others' bindings have none."""


@dataclass(frozen=True, slots=True)
class ObservedExchange:
    """An exchange that is there."""

    name: str
    """Its name."""
    kind: str
    """Its type."""
    durable: bool
    """Whether it outlives the broker."""


@dataclass(frozen=True, slots=True)
class ObservedQueue:
    """A queue that is there."""

    name: str
    """Its name."""
    arguments: Mapping[str, Any]
    """The arguments it was made with."""
    durable: bool
    """Whether it outlives the broker."""
    messages: int
    """How many messages are in it, delivered ones included; of a quorum queue, up to 5 s ago."""


@dataclass(frozen=True, slots=True)
class ObservedBinding:
    """A queue's binding that is there."""

    binding: Binding
    """The binding."""
    properties_key: str
    """What the management API calls it among the bindings of the two."""
    owner: str | None
    """Whose it is; None where somebody else made it."""


@dataclass(frozen=True, slots=True)
class ObservedUser:
    """A user that is there."""

    name: str
    """Its name."""
    password_hash: str = field(repr=False)
    """Its salted password, by which ours can be compared."""
    hashing: str
    """How it was hashed, in RabbitMQ's words."""
    permissions: Permissions | None
    """What it may do in this virtual host; None where it may not enter."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All of it. The mappings are by name; a reader never changes them."""

    exchanges: Mapping[str, ObservedExchange]
    """The exchanges, but for those that the broker itself makes."""
    queues: Mapping[str, ObservedQueue]
    """The queues."""
    bindings: Mapping[str, tuple[ObservedBinding, ...]]
    """The bindings by the queue that they lead to, without those of the default exchange."""
    users: Mapping[str, ObservedUser] | None
    """The broker's users; None where these credentials may not manage users."""

    def messages(self, queue: str) -> int:
        """How many messages are in a queue; 0 where there is no such queue."""
        found = self.queues.get(queue)
        return found.messages if found else 0


class Reason(StrEnum):
    """What kind of problem a broker has with us, or we with it."""

    UNREACHABLE = "Unreachable"
    """It does not answer, or it is something else that does."""
    AUTHENTICATION_FAILED = "AuthenticationFailed"
    """The user or the password is wrong."""
    VHOST_MISSING = "VhostMissing"
    """There is no such virtual host."""
    PERMISSION_DENIED = "PermissionDenied"
    """The user may not do this."""
    REFUSED = "Refused"
    """The broker does not do this, or could not."""
    NOT_EMPTY = "NotEmpty"
    """A queue that was to go if empty has messages."""
    IN_USE = "InUse"
    """An exchange that was to go if unused has bindings."""


@dataclass(frozen=True, slots=True)
class BrokerProblem:
    """Why there is no snapshot, or why an action failed."""

    reason: str
    """One of `Reason`."""
    message: str
    """For a person: what is wrong and what to do about it, without a password."""
