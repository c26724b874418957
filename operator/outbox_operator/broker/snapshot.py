"""A virtual host as it was at one time: its exchanges, queues, bindings and users, as values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from outbox.topology import Binding
from outbox_operator.broker.actions import Permissions
from outbox_operator.broker.identity import ClusterIdentity

OWNER = "outbox.dev/owner"
"""The argument of a binding that tells whose it is; others' bindings have none."""
INSTALLATION = "outbox.dev/installation"
"""The argument of a binding that names the installation of the operator that made it."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Whose a binding is."""

    owner: str
    """`namespace/name` of a listener, or the exchange of a tier."""
    installation: str = ""
    """The installation that made it; empty if that was not recorded."""

    def is_of(self, installation: str) -> bool:
        """Whether this installation made it, as far as is known."""
        return self.installation in ("", installation)


@dataclass(frozen=True, slots=True)
class ObservedExchange:
    """An exchange that is there."""

    name: str
    """Its name."""
    kind: str
    """Its type."""
    durable: bool
    """Whether it outlives the broker."""
    is_internal: bool = False
    """Whether nobody may publish to it."""
    is_auto_deleted: bool = False
    """Whether it goes with its last binding."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """The arguments it was made with."""
    policy: str | None = None
    """The name of the policy that applies to it."""


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
    is_counted: bool = True
    """False if the broker does not tell how many, as the queue's node is away."""
    policy: str | None = None
    """The name of the policy that applies to it; an operator policy is not named in a listing."""


@dataclass(frozen=True, slots=True)
class ObservedBinding:
    """A queue's binding that is there."""

    binding: Binding
    """The binding."""
    properties_key: str
    """What the management API calls it among the bindings of the two."""
    owner: str | None
    """Whose it is; None where somebody else made it."""
    installation: str = ""
    """The installation that made it; empty if that was not recorded."""

    @property
    def mark(self) -> Mark | None:
        return None if self.owner is None else Mark(self.owner, self.installation)

    def is_of(self, owner: str, installation: str) -> bool:
        """Whether `owner` of this installation made it."""
        return self.owner == owner and self.installation in ("", installation)


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
class ObservedPolicy:
    """A policy, which changes the objects whose names match its pattern."""

    name: str
    """Its name."""
    pattern: str
    """Erlang's regular expression over the names of objects."""
    apply_to: str
    """Objects of which kind: `all`, `queues`, `exchanges`, `quorum_queues` and others."""
    priority: int
    """Of several that match, the highest applies."""
    definition: Mapping[str, Any]
    """What it sets."""
    is_operators: bool = False
    """True for an operator policy, which applies beside a user's policy and limits it."""

    @property
    def title(self) -> str:
        """What it is called in messages."""
        return "operator policy" if self.is_operators else "policy"


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
    cluster: ClusterIdentity | None = None
    """The cluster that answered; None if it does not tell."""
    installations: Mapping[str, frozenset[str]] = field(default_factory=dict, compare=False)
    """By exchange, the installations that had bound something to it or to its tiers at the last look."""
    policies: tuple[ObservedPolicy, ...] = ()
    """The policies of users; none if these credentials may not list them."""
    operator_policies: tuple[ObservedPolicy, ...] = ()
    """The operator policies; none if these credentials may not list them."""
    hidden_queues: frozenset[str] = frozenset()
    """Those that exist and are not in `queues`: their nodes are away, and nothing else is known of them."""

    def exists(self, queue: str) -> bool:
        """Whether there is such a queue, even if nothing is known of it."""
        return queue in self.queues or queue in self.hidden_queues

    def messages(self, queue: str) -> int:
        """How many messages are in a queue as far as is known; 0 where there is no such queue."""
        found = self.queues.get(queue)
        return found.messages if found else 0

    def is_counted(self, queue: str) -> bool:
        """True if it is known how many messages are in a queue, or that it does not exist."""
        found = self.queues.get(queue)
        return queue not in self.hidden_queues if found is None else found.is_counted

    def is_empty(self, queue: str) -> bool:
        """True if a queue is known to have no message, or does not exist."""
        return self.is_counted(queue) and self.messages(queue) == 0


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
    INTERNAL_ERROR = "InternalError"
    """The operator failed at it, unexpectedly."""


@dataclass(frozen=True, slots=True)
class BrokerProblem:
    """Why there is no snapshot, or why an action failed."""

    reason: str
    """One of `Reason`."""
    message: str
    """For a person: what is wrong and what to do about it, without a password."""
