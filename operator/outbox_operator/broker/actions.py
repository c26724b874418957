"""What can be done to a virtual host: values that a plan consists of and that a test can compare."""

from dataclasses import dataclass, field
from typing import TypeAlias

from outbox.topology import Binding, Exchange, Queue


@dataclass(frozen=True, slots=True)
class MakeExchange:
    """Make an exchange."""

    exchange: Exchange
    """The exchange."""


@dataclass(frozen=True, slots=True)
class MakeQueue:
    """Make a queue."""

    queue: Queue
    """The queue."""


@dataclass(frozen=True, slots=True)
class MakeBinding:
    """Bind a queue, with a mark that tells whose binding it is."""

    binding: Binding
    """The binding."""
    owner: str
    """Whoever asked for it: `namespace/name` of a listener, or the exchange of a tier."""
    installation: str = ""
    """The installation of the operator that makes it; empty if it has no name."""


@dataclass(frozen=True, slots=True)
class RemoveBinding:
    """Take a binding away."""

    binding: Binding
    """The binding."""
    properties_key: str
    """What the management API calls it among the bindings of the two."""


@dataclass(frozen=True, slots=True)
class RemoveQueue:
    """Delete a queue."""

    name: str
    """Its name."""
    if_empty: bool
    """Whether it stays if a message is in it. No version of RabbitMQ checks and deletes a quorum queue in one
    step (rabbitmq-server#10543): its bindings must be gone, and it must have been seen empty for a while."""
    owner: str | None = None
    """The listener that removes it: it stays if another one has marked it. None for a tier."""
    installation: str = ""
    """The installation of that listener."""


@dataclass(frozen=True, slots=True)
class RemoveExchange:
    """Delete an exchange."""

    name: str
    """Its name."""
    if_unused: bool = False
    """Whether it stays where something is bound to it."""


@dataclass(frozen=True, slots=True)
class Permissions:
    """What a user may do in a virtual host, as regular expressions over the names of objects."""

    configure: str
    """Make and delete."""
    write: str
    """Publish to."""
    read: str
    """Consume from, and bind from."""


@dataclass(frozen=True, slots=True)
class MakeUser:
    """Make a user, or put its password and permissions right."""

    name: str
    """Its name."""
    password: str = field(repr=False)
    """Its password."""
    permissions: Permissions
    """What it may do in this virtual host."""


@dataclass(frozen=True, slots=True)
class RemoveUser:
    """Delete a user."""

    name: str
    """Its name."""


@dataclass(frozen=True, slots=True)
class RevokePermissions:
    """Take from a user all that it may do in this virtual host."""

    name: str
    """Its name."""


Action: TypeAlias = (
    MakeExchange
    | MakeQueue
    | MakeBinding
    | RemoveBinding
    | RemoveQueue
    | RemoveExchange
    | MakeUser
    | RemoveUser
    | RevokePermissions
)
