"""What the management API lists, as values. Pure.

A listing that is not RabbitMQ's raises a KeyError, a TypeError or an AttributeError.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from outbox.topology import Binding
from outbox_operator.broker.actions import Permissions
from outbox_operator.broker.snapshot import (
    INSTALLATION,
    OWNER,
    ObservedBinding,
    ObservedExchange,
    ObservedPolicy,
    ObservedQueue,
    ObservedUser,
)

_BROKERS_PREFIX = "amq."


def parse_exchanges(listing: Any) -> dict[str, ObservedExchange]:
    """The exchanges by name, without those that the broker itself makes."""
    return {
        each["name"]: ObservedExchange(
            each["name"],
            each["type"],
            each["durable"],
            is_internal=bool(each.get("internal")),
            is_auto_deleted=bool(each.get("auto_delete")),
            arguments=each.get("arguments") or {},
            policy=each.get("policy") or None,
        )
        for each in listing
        if each["name"] and not each["name"].startswith(_BROKERS_PREFIX)
    }


def parse_queues(listing: Any) -> dict[str, ObservedQueue]:
    """The queues by name."""
    return {
        each["name"]: ObservedQueue(
            each["name"],
            each["arguments"],
            each["durable"],
            each.get("messages") or 0,
            is_counted=isinstance(each.get("messages"), int),
            policy=each.get("policy") or None,
        )
        for each in listing
    }


def parse_bindings(listing: Any) -> dict[str, tuple[ObservedBinding, ...]]:
    """The bindings of each queue but for that of the default exchange, always in the same order."""
    found: dict[str, list[ObservedBinding]] = {}
    for each in listing:
        if each["source"] and each["destination_type"] == "queue":
            binding = Binding(each["source"], each["destination"], each["routing_key"])
            arguments = each["arguments"]
            observed = ObservedBinding(
                binding, each["properties_key"], arguments.get(OWNER), str(arguments.get(INSTALLATION, ""))
            )
            found.setdefault(binding.queue, []).append(observed)
    return {queue: ordered(bindings) for queue, bindings in found.items()}


def installations_of(bindings: Mapping[str, Iterable[ObservedBinding]]) -> dict[str, frozenset[str]]:
    """By exchange, the installations that have bound something to it, or have marked a tier of it."""
    found: dict[str, set[str]] = {}
    for each in (each for bound in bindings.values() for each in bound if each.installation):
        is_tier = each.binding.exchange == each.binding.queue
        exchange = each.owner if is_tier and each.owner else each.binding.exchange
        found.setdefault(exchange, set()).add(each.installation)
    return {exchange: frozenset(ids) for exchange, ids in found.items()}


def parse_bound_queues(listing: Any) -> frozenset[str]:
    """The names of all queues, from the bindings: each is bound to the default exchange.

    A quorum queue that has no leader, since too many of its nodes are away, is bound and not listed.
    """
    return frozenset(
        each["destination"] for each in listing if not each["source"] and each["destination_type"] == "queue"
    )


def parse_policies(listing: Any, *, is_operators: bool = False) -> tuple[ObservedPolicy, ...]:
    """The policies of one virtual host, always in the same order; none for a listing that was not allowed."""
    found = (
        ObservedPolicy(
            each["name"],
            each["pattern"],
            each.get("apply-to") or "all",
            each.get("priority") or 0,
            each.get("definition") or {},
            is_operators,
        )
        for each in listing or ()
    )
    return tuple(sorted(found, key=lambda policy: policy.name))


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
        sorted(
            bindings,
            key=lambda each: (
                each.binding.exchange,
                each.binding.routing_key,
                each.owner or "",
                each.installation,
            ),
        )
    )
