"""What of a virtual host concerns one resource, to tell whether it has to be looked at again. Pure."""

from dataclasses import dataclass

from outbox.topology import dead_letter_exchange, dead_letter_queue
from outbox_operator.broker.snapshot import (
    ObservedBinding,
    ObservedExchange,
    ObservedQueue,
    ObservedUser,
    Snapshot,
)
from outbox_operator.planning.listener_plan import tiers_of
from outbox_operator.resources import OutboxListener, OutboxRelay
from outbox_operator.subscriptions import queue_of


@dataclass(frozen=True, slots=True)
class Interest:
    """The names that a resource cares for."""

    exchanges: tuple[str, ...]
    """Exchanges."""
    queues: tuple[str, ...]
    """Queues, with the bindings that lead to them."""
    user: str | None
    """The user of its pods."""


@dataclass(frozen=True, slots=True)
class Glimpse:
    """What is behind these names; two that are equal need no second look."""

    exchanges: tuple[ObservedExchange | None, ...]
    queues: tuple[ObservedQueue | None, ...]
    bindings: tuple[frozenset[ObservedBinding], ...]
    user: ObservedUser | None
    may_manage_users: bool


def listener_interest(listener: OutboxListener, exchange: str, user: str | None) -> Interest:
    queue, tiers = queue_of(listener), tiers_of(listener, exchange)
    return Interest(
        (exchange, dead_letter_exchange(exchange), *tiers), (queue, dead_letter_queue(queue), *tiers), user
    )


def relay_interest(relay: OutboxRelay, user: str | None) -> Interest:
    exchange = relay.spec.exchange
    return Interest((exchange, dead_letter_exchange(exchange)), (), user)


def glimpse(snapshot: Snapshot, interest: Interest) -> Glimpse:
    return Glimpse(
        tuple(map(snapshot.exchanges.get, interest.exchanges)),
        tuple(map(snapshot.queues.get, interest.queues)),
        tuple(frozenset(snapshot.bindings.get(queue, ())) for queue in interest.queues),
        (snapshot.users or {}).get(interest.user) if interest.user else None,
        snapshot.users is not None,
    )
