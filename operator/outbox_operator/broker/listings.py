"""What the management API lists, as values. Pure.

A listing that is not RabbitMQ's raises a KeyError, a TypeError or an AttributeError.
"""

from typing import Any

from outbox.topology import Binding
from outbox_operator.broker.actions import Permissions
from outbox_operator.broker.snapshot import (
    OWNER,
    ObservedBinding,
    ObservedExchange,
    ObservedQueue,
    ObservedUser,
)

_BROKERS_PREFIX = "amq."


def parse_exchanges(listing: Any) -> dict[str, ObservedExchange]:
    """The exchanges by name, without those that the broker itself makes."""
    return {
        each["name"]: ObservedExchange(each["name"], each["type"], each["durable"])
        for each in listing
        if each["name"] and not each["name"].startswith(_BROKERS_PREFIX)
    }


def parse_queues(listing: Any) -> dict[str, ObservedQueue]:
    """The queues by name. One whose node is away has no number of messages, and counts as empty."""
    return {
        each["name"]: ObservedQueue(
            each["name"], each["arguments"], each["durable"], each.get("messages") or 0
        )
        for each in listing
    }


def parse_bindings(listing: Any) -> dict[str, tuple[ObservedBinding, ...]]:
    """The bindings of each queue but for that of the default exchange, always in the same order."""
    found: dict[str, list[ObservedBinding]] = {}
    for each in listing:
        if each["source"] and each["destination_type"] == "queue":
            binding = Binding(each["source"], each["destination"], each["routing_key"])
            owner = each["arguments"].get(OWNER)
            observed = ObservedBinding(binding, each["properties_key"], owner)
            found.setdefault(binding.queue, []).append(observed)
    return {queue: ordered(bindings) for queue, bindings in found.items()}


def parse_users(users: Any, permissions: Any) -> dict[str, ObservedUser]:
    """The users by name, with what each may do by `permissions`, those of one virtual host."""
    allowed = {
        each["user"]: Permissions(each["configure"], each["write"], each["read"]) for each in permissions
    }
    return {
        each["name"]: ObservedUser(
            each["name"],
            each.get("password_hash") or "",
            each.get("hashing_algorithm") or "",
            allowed.get(each["name"]),
        )
        for each in users
    }


def ordered(bindings: list[ObservedBinding]) -> tuple[ObservedBinding, ...]:
    """The bindings of one queue in the order that a snapshot has them in."""
    return tuple(
        sorted(bindings, key=lambda each: (each.binding.exchange, each.binding.routing_key, each.owner or ""))
    )
