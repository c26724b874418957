"""What is known of relays and listeners at one moment, as values."""

from dataclasses import dataclass

from outbox_core.horizon_holder import Holder


@dataclass(frozen=True, slots=True)
class ResourceState:
    """What the operator says of a resource."""

    kind: str
    """OutboxRelay or OutboxListener."""
    namespace: str
    """Its namespace."""
    name: str
    """Its name."""
    ready: str
    """Whether it is ready: True, False or Unknown."""
    reason: str
    """Why, in one word."""
    problems: tuple[str, ...]
    """What its conditions say that are False, each with its cure."""
    is_seen: bool
    """Whether the operator has looked at it as it is now."""
    pods: str
    """Pods that are ready, of those that are wanted, as 1/2; empty where it has none of its own."""

    @property
    def path(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class TableState:
    """What waits in an outbox table. A number is None where nobody could look."""

    name: str
    """The table."""
    pending: int | None
    """Messages that are due; an estimate where they are very many."""
    delayed: int | None
    """Messages that are due later, counted up to 10,000."""
    oldest_seconds: float | None
    """How long the oldest of those due has been; None also where none is."""
    parked: int | None
    """Messages that the relay gave up, counted up to 10,000."""
    dead_rows: int | None = None
    """Dead rows that vacuum has not removed, as Postgres estimates them."""
    horizon_holder: Holder | None = None
    """What keeps vacuum from removing them, if they are many."""


@dataclass(frozen=True, slots=True)
class RelayState:
    """A relay: its table and its exchange."""

    exchange: str
    """Where its messages go."""
    table: TableState | None
    """Where they come from; None where no database was named."""
    resource: ResourceState | None = None
    """What the operator says; None without one."""


@dataclass(frozen=True, slots=True)
class QueueState:
    """A listener: its queue, and who empties it. A number is None where nobody could look."""

    queue: str
    """Its queue."""
    waiting: int | None
    """Messages that wait in it."""
    consumers: int | None
    """How many consume it."""
    dead_letters: int | None
    """Messages in its dead-letter queue; None also where it has none."""
    is_missing: bool = False
    """Whether the broker has no such queue."""
    may_rest: bool = False
    """Whether it has no consumer on purpose while nothing waits."""
    resource: ResourceState | None = None
    """What the operator says; None without one."""


@dataclass(frozen=True, slots=True)
class TierState:
    """A delay tier of an exchange, where messages wait for their next attempt."""

    name: str
    """Its queue."""
    waiting: int
    """Messages that wait in it."""
    relay: str | None = None
    """The OutboxRelay whose exchange it is of; None without an operator."""


@dataclass(frozen=True, slots=True)
class Picture:
    """All of it."""

    relays: tuple[RelayState, ...] = ()
    """The relays."""
    queues: tuple[QueueState, ...] = ()
    """The listeners' queues."""
    tiers: tuple[TierState, ...] = ()
    """The delay tiers, as far as the broker was looked at."""
    notes: tuple[str, ...] = ()
    """What could not be looked at directly, and where the numbers are from instead."""
    unseen: tuple[str, ...] = ()
    """What could not be looked at at all, and why."""
