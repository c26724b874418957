"""What of a virtual host concerns one resource, to tell whether it has to be looked at again. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from outbox.topology import dead_letter_exchange, dead_letter_queue
from outbox_operator.broker.policies import Setting, exchange_settings, queue_settings
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
    login: str | None = None
    """The user as whom the operator acts: what its permissions did not allow is tried again with others."""


@dataclass(frozen=True, slots=True)
class Glimpse:
    """What is behind these names; two that are equal need no second look."""

    exchanges: tuple[ObservedExchange | None, ...]
    queues: tuple[ObservedQueue | None, ...]
    settings: tuple[Mapping[str, Setting], ...]
    hidden: tuple[bool, ...]
    bindings: tuple[frozenset[ObservedBinding], ...]
    user: ObservedUser | None
    login: ObservedUser | None
    may_manage_users: bool


def listener_interest(
    listener: OutboxListener,
    exchange: str,
    user: str | None,
    live_delays: tuple[timedelta, ...] = (),
    *,
    login: str | None = None,
) -> Interest:
    queue, tiers = queue_of(listener), tiers_of(listener, exchange, live_delays)
    exchanges = (exchange, dead_letter_exchange(exchange), *tiers)
    return Interest(exchanges, (queue, dead_letter_queue(queue), *tiers), user, login)


def relay_interest(relay: OutboxRelay, user: str | None, login: str | None = None) -> Interest:
    exchange = relay.spec.exchange
    return Interest((exchange, dead_letter_exchange(exchange)), (), user, login)


def glimpse(snapshot: Snapshot, interest: Interest) -> Glimpse:
    return Glimpse(
        tuple(map(snapshot.exchanges.get, interest.exchanges)),
        tuple(map(snapshot.queues.get, interest.queues)),
        (
            *(exchange_settings(name, snapshot) for name in interest.exchanges),
            *(queue_settings(name, snapshot) for name in interest.queues),
        ),
        tuple(name in snapshot.hidden_queues for name in interest.queues),
        tuple(frozenset(snapshot.bindings.get(queue, ())) for queue in interest.queues),
        (snapshot.users or {}).get(interest.user) if interest.user else None,
        (snapshot.users or {}).get(interest.login) if interest.login else None,
        snapshot.users is not None,
    )
