"""What the management API lists, as values. Pure.

A listing that is not RabbitMQ's raises a KeyError, a TypeError or an AttributeError: every value that is kept
has been checked, as it may come from any server.
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
_LONGEST_TEXT = 65_536
_LARGEST_NUMBER = 2**63 - 1
_DEEPEST = 8


def parse_exchanges(listing: Any) -> dict[str, ObservedExchange]:
    """The exchanges by name, without those that the broker itself makes."""
    return {
        each["name"]: ObservedExchange(
            _text(each["name"]),
            _text(each["type"]),
            _flag(each["durable"]),
            is_internal=_flag(each.get("internal") or False),
            is_auto_deleted=_flag(each.get("auto_delete") or False),
            arguments=_table(each.get("arguments") or {}),
            policy=_text(each.get("policy") or "") or None,
        )
        for each in listing
        if each["name"] and not _text(each["name"]).startswith(_BROKERS_PREFIX)
    }


def parse_queues(listing: Any) -> dict[str, ObservedQueue]:
    """The queues by name."""
    return {
        each["name"]: ObservedQueue(
            _text(each["name"]),
            _table(each["arguments"]),
            _flag(each["durable"]),
            _count(each.get("messages")) or 0,
            is_counted=_count(each.get("messages")) is not None,
            policy=_text(each.get("policy") or "") or None,
        )
        for each in listing
    }


def parse_bindings(listing: Any) -> dict[str, tuple[ObservedBinding, ...]]:
    """The bindings of each queue but for that of the default exchange, always in the same order."""
    found: dict[str, list[ObservedBinding]] = {}
    for each in listing:
        if each["source"] and each["destination_type"] == "queue":
            binding = Binding(_text(each["source"]), _text(each["destination"]), _text(each["routing_key"]))
            arguments = _table(each["arguments"])
            owner = arguments.get(OWNER)
            observed = ObservedBinding(
                binding,
                _text(each["properties_key"]),
                None if owner is None else _text(owner),
                _text(arguments.get(INSTALLATION, "")),
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
        _text(each["destination"])
        for each in listing
        if not each["source"] and each["destination_type"] == "queue"
    )


def parse_policies(listing: Any, *, is_operators: bool = False) -> tuple[ObservedPolicy, ...]:
    """The policies of one virtual host, always in the same order; none for a listing that was not allowed."""
    found = (
        ObservedPolicy(
            _text(each["name"]),
            _text(each["pattern"]),
            _text(each.get("apply-to") or "all"),
            _number(each.get("priority") or 0),
            _table(each.get("definition") or {}),
            is_operators,
        )
        for each in listing or ()
    )
    return tuple(sorted(found, key=lambda policy: policy.name))


def parse_users(users: Any, permissions: Any) -> dict[str, ObservedUser]:
    """The users by name, with what each may do by `permissions`, those of one virtual host."""
    allowed = {
        _text(each["user"]): Permissions(_text(each["configure"]), _text(each["write"]), _text(each["read"]))
        for each in permissions
    }
    return {
        each["name"]: ObservedUser(
            _text(each["name"]),
            _text(each.get("password_hash") or ""),
            _text(each.get("hashing_algorithm") or ""),
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


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > _LONGEST_TEXT:
        raise TypeError("a text was expected")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError("true or false was expected")
    return value


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _LARGEST_NUMBER:
        raise TypeError("a number was expected")
    return value


def _count(value: Any) -> int | None:
    """A number of messages; None if the broker gives none."""
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST_NUMBER
    return value if is_count else None


def _table(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not _is_flat(list(value.values())):
        raise TypeError("a table was expected")
    return value


def _is_flat(values: list[Any]) -> bool:
    """Whether they can be compared and shown without running out of stack."""
    for _ in range(_DEEPEST):
        values = [
            item
            for value in values
            if isinstance(value, list | Mapping)
            for item in (value.values() if isinstance(value, Mapping) else value)
        ]
    return not values
