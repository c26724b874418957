"""Broker users with the least rights that a relay or a worker works with. Pure."""

import re
from collections.abc import Iterable

from outbox.topology import dead_letter_exchange, dead_letter_queue
from outbox_operator.broker import passwords
from outbox_operator.broker.actions import MakeUser, Permissions
from outbox_operator.broker.snapshot import Snapshot

_NOTHING = "^$"


def relay_permissions(exchange: str) -> Permissions:
    """A relay publishes to its exchange, and so may see whether it is there."""
    return Permissions(configure=_NOTHING, write=_only(exchange), read=_NOTHING)


def worker_permissions(exchange: str, queue: str, tiers: Iterable[str]) -> Permissions:
    """A worker consumes from its queue, and publishes to its tiers and the dead-letter exchange.

    It counts what is in its dead-letter queue, for which RabbitMQ 4.3 wants some right on it. To write to a
    queue is the least: only who may read an exchange can bind that queue to it.
    """
    written = (*sorted(tiers), dead_letter_exchange(exchange), dead_letter_queue(queue))
    return Permissions(configure=_NOTHING, write=_only(*written), read=_only(queue))


def user_action(name: str, password: str, permissions: Permissions, snapshot: Snapshot) -> MakeUser | None:
    """What makes a user right; None where it is, or where these credentials may not manage users."""
    if snapshot.users is None:
        return None
    found = snapshot.users.get(name)
    is_right = (
        found is not None
        and found.permissions == permissions
        and passwords.matches(password, found.password_hash, found.hashing)
    )
    return None if is_right else MakeUser(name, password, permissions)


def _only(*names: str) -> str:
    return f"^({'|'.join(map(re.escape, names))})$"
