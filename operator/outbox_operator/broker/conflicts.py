"""What is there under a name that we want, and is something else. Pure.

Compared by reading: RabbitMQ may accept a declaration with other arguments than those of the queue.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from outbox.topology import Exchange, Queue, Topology
from outbox_operator.broker.snapshot import ObservedExchange, ObservedQueue, Snapshot

_QUEUE_TYPE = "x-queue-type"
_QUEUE_CURE = (
    "it cannot be changed: move its messages away and delete it, or set spec.queue of a new listener"
)
_EXCHANGE_CURE = (
    "it cannot be changed: delete it and it is made again with its bindings, "
    "or set spec.exchange of a new relay"
)
_TIER_CURE = "it cannot be changed: delete it when it is empty, and it is made again"
_KEY_CURE = 'choose a key without "~" in spec.bindingKeys'

_PROPERTIES = {
    "durable": "is not durable and must be",
    "internal": "is internal, so that nobody may publish to it",
    "auto_delete": "is deleted with its last binding and must not be",
    "routing_key": "would keep RabbitMQ from listing the bindings of its vhost",
}


@dataclass(frozen=True, slots=True)
class Conflict:
    """One thing by which what is there differs from what is wanted."""

    kind: Literal["queue", "exchange", "binding"]
    """What it is."""
    name: str
    """Its name, or the key of a binding."""
    argument: str
    """What differs: an argument or a property such as `durable`; of a binding, `routing_key`."""
    found: Any
    """How it is; None where it has no such argument."""
    wanted: Any
    """How it should be; None where it should have no such argument."""
    cure: str
    """What a person may do."""

    @property
    def message(self) -> str:
        """All of it, for a person."""
        return f'{self.kind} "{self.name}" {self.difference}; {self.cure}'

    @property
    def difference(self) -> str:
        """What differs, as the end of a sentence about the object."""
        if words := _PROPERTIES.get(self.argument):
            return words
        match self.argument:
            case "type" | "x-queue-type":
                # A queue without this argument is a classic one.
                return f"is of type {self.found or 'classic'} where {self.wanted} is wanted"
        wanted = "none" if self.wanted is None else _shown(self.wanted)
        if self.found is None:
            return f"has no {self.argument} where {wanted} is wanted"
        return f"has {self.argument}={_shown(self.found)} where {wanted} is wanted"


def conflicts_with(desired: Topology, snapshot: Snapshot) -> Iterator[Conflict]:
    """All that stands in the way of `desired`."""
    tiers = {each.name for each in desired.exchanges if each.kind == "fanout"}
    for exchange in desired.exchanges:
        if exchange_found := snapshot.exchanges.get(exchange.name):
            cure = _TIER_CURE if exchange.name in tiers else _EXCHANGE_CURE
            yield from _exchange_differences(exchange_found, exchange, cure)
    for queue in desired.queues:
        if queue_found := snapshot.queues.get(queue.name):
            cure = _TIER_CURE if queue.name in tiers else _QUEUE_CURE
            yield from _queue_differences(queue_found, queue, cure)
    for key in dict.fromkeys(binding.routing_key for binding in desired.bindings):
        # RabbitMQ (3.10) fails to list a binding with such a key and arguments, and our mark is one; then
        # it lists none of the vhost's any more, and nobody knows what is there.
        if "~" in key[:-1]:
            yield Conflict("binding", key, "routing_key", key, None, _KEY_CURE)


def is_as_wanted(found: ObservedQueue, wanted: Queue) -> bool:
    """Whether a queue is what `wanted` would make."""
    return next(_queue_differences(found, wanted, ""), None) is None


def is_exchange_as_wanted(found: ObservedExchange, wanted: Exchange) -> bool:
    """Whether an exchange is what `wanted` would make."""
    return next(_exchange_differences(found, wanted, ""), None) is None


def _exchange_differences(found: ObservedExchange, wanted: Exchange, cure: str) -> Iterator[Conflict]:
    if found.kind != wanted.kind:
        yield Conflict("exchange", wanted.name, "type", found.kind, wanted.kind, cure)
    if not found.durable:
        yield Conflict("exchange", wanted.name, "durable", found.durable, wanted=True, cure=cure)
    if found.is_internal:
        yield Conflict("exchange", wanted.name, "internal", found.is_internal, wanted=False, cure=cure)
    if found.is_auto_deleted:
        yield Conflict("exchange", wanted.name, "auto_delete", found.is_auto_deleted, wanted=False, cure=cure)
    # An alternate exchange takes what no queue is bound for: nobody would ever hear that it was unroutable.
    for name in _differing(found.arguments, {}):
        yield Conflict("exchange", wanted.name, name, found.arguments[name], None, cure)


def _queue_differences(found: ObservedQueue, wanted: Queue, cure: str) -> Iterator[Conflict]:
    arguments = wanted.arguments
    for name in _differing(found.arguments, arguments):
        yield Conflict("queue", wanted.name, name, found.arguments.get(name), arguments.get(name), cure)
    if not found.durable:
        yield Conflict("queue", wanted.name, "durable", found.durable, wanted=True, cure=cure)


def _differing(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[str]:
    """The names of the arguments that differ, the queue's type first, since others follow from it."""
    for name in sorted({*found, *wanted}, key=lambda name: (name != _QUEUE_TYPE, name)):
        one, other = found.get(name), wanted.get(name)
        # True is 1 to Python, and not to the broker; 5.0 is 5 to both.
        if isinstance(one, bool) != isinstance(other, bool) or one != other:
            yield name


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
