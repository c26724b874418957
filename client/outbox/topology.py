"""What must exist on the broker: exchanges, queues with their arguments, and bindings, as values.

Pure: from an exchange and the subscriptions to it to a `Topology`, which others declare, check or compare.
The names are an interface between processes of different versions and never change.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from outbox.retry import RetryPolicy, duration

if TYPE_CHECKING:
    from outbox.listener import Listener

DELIVERY_LIMIT = 20
"""Deliveries without an answer (a consumer that dies) before the broker dead-letters. What RabbitMQ 4 does by
default; 3.x has no default and would deliver a message that kills its consumer for ever."""

DEAD_LETTER_DELIVERY_LIMIT = 1_000_000
"""Behind a DLQ there is no further queue: at the limit a message is dropped, and each look at it that
requeues counts. RabbitMQ 4 would drop at its default of 20. Not -1: to 4.x it is no limit, to 3.x zero."""

MOST_OF_A_QUEUE = 2**53
"""Messages or bytes that a queue can be limited to: more is no exact number to whoever reads it as JSON."""

LONGEST_NAME = 255
"""Of a queue or a routing key, in bytes of UTF-8: both are AMQP short strings."""

LONGEST_EXCHANGE_NAME = 127
"""RabbitMQ takes 255, but the AMQP 0-9-1 specification says 127 and aio-pika (pamqp) keeps to it."""

_LIMITS = {
    "max_length": "x-max-length",
    "max_bytes": "x-max-length-bytes",
    "delivery_limit": "x-delivery-limit",
}
"""The fields of a subscription that limit its queue, and the arguments that they become."""

_MILLISECOND = timedelta(milliseconds=1)
_TIER_SUFFIX = re.compile(r"\.delay_[0-9]+m?s")
_LONGEST_TIER_SUFFIX = ".delay_86399999ms"
# What aio-pika (pamqp) lets through to the broker, which would itself take any text.
_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9\-_.:@#,/+ ]")


class TopologyError(ValueError):
    """A topology that the broker would refuse, or in which two listeners would disturb each other."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """One queue and what it needs: a `Listener` and a custom resource both come down to this."""

    queue: str
    """The queue's name."""
    binding_keys: tuple[str, ...]
    """The topics it receives; at least one."""
    delays: tuple[timedelta, ...]
    """Every delay its retries may take, in order."""
    ordered: bool = False
    """Whether one consumer at a time gets its messages, and waits in place for a retry: in a tier a message
    would be overtaken."""
    max_length: int | None = None
    """How many messages the queue holds before it refuses more; None for no limit."""
    max_bytes: int | None = None
    """How many bytes of them; None for no limit."""
    delivery_limit: int = DELIVERY_LIMIT
    """How often a message is delivered without an answer before it is dead-lettered."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A durable exchange."""

    name: str
    """Its name."""
    kind: Literal["topic", "direct", "fanout"]
    """Its AMQP type."""


@dataclass(frozen=True, slots=True)
class Queue:
    """A durable queue."""

    name: str
    """Its name."""
    settings: tuple[tuple[str, str | int], ...]
    """Its arguments as sorted pairs, so that queues can be compared and put into sets."""

    @property
    def arguments(self) -> dict[str, Any]:
        """Its arguments as a client library takes them: a new dictionary each time."""
        return dict(self.settings)


@dataclass(frozen=True, slots=True)
class Binding:
    """A queue's binding to an exchange."""

    exchange: str
    """The exchange that messages come from."""
    queue: str
    """The queue that they go to."""
    routing_key: str
    """The topic, the dead letter's key, or nothing for a fanout."""


@dataclass(frozen=True, slots=True)
class Topology:
    """All that must exist, each in an order to declare it in: a message's way out before its way in."""

    exchanges: tuple[Exchange, ...]
    """The exchange, its dead-letter exchange, one exchange per tier."""
    queues: tuple[Queue, ...]
    """The dead-letter queues, the tiers, the listeners' queues."""
    bindings: tuple[Binding, ...]
    """Those of the dead-letter queues, of the tiers, of the listeners' queues."""


def topology(exchange: str, subscriptions: Iterable[Subscription]) -> Topology:
    """What `subscriptions` to `exchange` need, or a `TopologyError` that names what does not fit."""
    check_exchange(exchange)
    exchange = str.__str__(exchange)
    merged = _merge(subscriptions)
    delays = sorted({delay for s in merged if not s.ordered for delay in s.delays})
    tiers = {tier_name(exchange, delay): delay for delay in delays}
    _check_collisions(exchange, merged)
    dlx = dead_letter_exchange(exchange)
    return Topology(
        exchanges=(
            Exchange(exchange, "topic"),
            Exchange(dlx, "direct"),
            *(Exchange(tier, "fanout") for tier in tiers),
        ),
        queues=(
            *(_dead_letter_queue(s.queue) for s in merged),
            *(_tier_queue(tier, delay) for tier, delay in tiers.items()),
            *(_listener_queue(s, dlx) for s in merged),
        ),
        bindings=(
            *(Binding(dlx, dead_letter_queue(s.queue), s.queue) for s in merged),
            *(Binding(tier, tier, "") for tier in tiers),
            *(Binding(exchange, s.queue, key) for s in merged for key in s.binding_keys),
        ),
    )


def subscription(listener: "Listener[..., object]", default: RetryPolicy) -> Subscription:
    """What `listener` needs, where `default` is the policy of a listener that names none."""
    policy = listener.policy(default)
    delays = tuple(tier for delay in policy.delays() for tier in policy.fan(delay))
    return Subscription(listener.queue, (listener.binding_key,), delays, listener.ordered)


def dead_letter_exchange(exchange: str) -> str:
    # Not an f-string, in which a member of `class Name(str, Enum)` is "Name.MEMBER".
    return exchange + ".dlx"


def dead_letter_queue(queue: str) -> str:
    return queue + ".dlq"


def tier_name(exchange: str, delay: timedelta) -> str:
    """The name of both the exchange and the queue that hold a message back for `delay`."""
    milliseconds = round(delay / _MILLISECOND)
    seconds, rest = divmod(milliseconds, 1000)
    return exchange + (f".delay_{milliseconds}ms" if rest else f".delay_{seconds}s")


def check_exchange(exchange: str) -> None:
    """Raise a `TopologyError` unless `exchange` can be declared, and every exchange made from its name."""
    _check_name("exchange", exchange)
    subject = f"exchange {exchange!r} with the suffix of a delay tier"
    _check_length(subject, exchange + _LONGEST_TIER_SUFFIX, LONGEST_EXCHANGE_NAME)


def check_queue(queue: str) -> None:
    """Raise a `TopologyError` unless `queue` and its dead-letter queue can be declared."""
    _check_name("queue", queue)
    _check_length(f"queue {queue!r} with the suffix '.dlq'", dead_letter_queue(queue), LONGEST_NAME)


def check_binding_key(key: str, queue: str) -> None:
    """Raise a `TopologyError` unless `queue` can be bound with `key`."""
    if not _is_text(key):
        raise TopologyError(
            f"queue {queue!r}: binding key {key!r} must be a topic such as 'user.created', or '#' for all"
        )
    _check_length(f"queue {queue!r}: binding key {key!r}", key, LONGEST_NAME)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _check_name(kind: str, name: str) -> None:
    if not _is_text(name):
        raise TopologyError(f"{kind} {name!r}: the name must be a text that is not empty")
    if name.startswith("amq."):
        raise TopologyError(f"{kind} {name!r}: names that start with 'amq.' belong to the broker; rename it")
    if found := _NOT_IN_A_NAME.search(name):
        raise TopologyError(
            f"{kind} {name!r}: {found[0]!r} cannot be in a name; "
            "use ASCII letters, digits, spaces and -_.:@#,/+"
        )


def _check_length(subject: str, name: str, longest: int) -> None:
    if (size := len(name.encode())) > longest:
        raise TopologyError(f"{subject} is {size} bytes long and AMQP takes {longest}; shorten it")


def _merge(subscriptions: Iterable[Subscription]) -> list[Subscription]:
    """One subscription a queue, sorted by queue, with all of its binding keys sorted."""
    merged: dict[str, Subscription] = {}
    for subscription in map(_checked, subscriptions):
        other = merged.get(subscription.queue, subscription)
        if other.ordered != subscription.ordered:
            raise TopologyError(
                f"queue {subscription.queue!r} is given twice, once ordered and once not; "
                "order both or give them queues of their own"
            )
        if other.delays != subscription.delays:
            raise TopologyError(
                f"queue {subscription.queue!r} is given twice with different retry delays: "
                f"{_described(other)} and {_described(subscription)}; "
                "give them the same delays or queues of their own"
            )
        _check_same_limits(other, subscription)
        keys = tuple(sorted({*other.binding_keys, *subscription.binding_keys}))
        merged[subscription.queue] = replace(subscription, binding_keys=keys)
    return [merged[queue] for queue in sorted(merged)]


def _checked(subscription: Subscription) -> Subscription:
    check_queue(subscription.queue)
    keys = subscription.binding_keys
    if _is_text(keys) or not keys:
        raise TopologyError(
            f"queue {subscription.queue!r}: binding keys {keys!r} must be a tuple of at least one"
        )
    for key in keys:
        check_binding_key(key, subscription.queue)
    try:
        delays = tuple(duration(delay) for delay in subscription.delays)
    except (TypeError, ValueError) as error:
        raise TopologyError(f"queue {subscription.queue!r}: {error}") from error
    _check_limits(subscription)
    queue, keys = str.__str__(subscription.queue), tuple(map(str.__str__, keys))
    return replace(subscription, queue=queue, binding_keys=keys, delays=delays)


def _check_limits(subscription: Subscription) -> None:
    given: list[tuple[str, object, int]] = [
        ("max_length", subscription.max_length, MOST_OF_A_QUEUE),
        ("max_bytes", subscription.max_bytes, MOST_OF_A_QUEUE),
        ("delivery_limit", subscription.delivery_limit, DEAD_LETTER_DELIVERY_LIMIT),
    ]
    for name, value, most in given:
        if value is None and name != "delivery_limit":
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise TopologyError(
                f"queue {subscription.queue!r}: {name}={value!r} must be a whole number from 1 to {most}"
            )


def _check_same_limits(one: Subscription, other: Subscription) -> None:
    for name in _LIMITS:
        first, second = getattr(one, name), getattr(other, name)
        if first != second:
            raise TopologyError(
                f"queue {one.queue!r} is given twice, with {name}={first} and with {name}={second}; "
                "give them the same limits or queues of their own"
            )


def _check_collisions(exchange: str, merged: list[Subscription]) -> None:
    """Refuse a queue with the name of a DLQ or tier: it would be declared twice, with different arguments."""
    owners = {dead_letter_queue(s.queue): s.queue for s in merged}
    for queue in (s.queue for s in merged):
        if queue in owners:
            raise TopologyError(f"queue {queue!r} is the dead-letter queue of {owners[queue]!r}; rename one")
        # Of any delay, not only those needed here: another process on this exchange may need it.
        if queue.startswith(exchange) and _TIER_SUFFIX.fullmatch(queue, len(exchange)):
            raise TopologyError(
                f"queue {queue!r} has the name of a delay tier of exchange {exchange!r}; rename it"
            )


# Dead-lettering in a quorum queue loses messages unless it is at-least-once, and RabbitMQ falls back to
# at-most-once, with no more than a line in its log, where overflow is not reject-publish.
_LOSSLESS: dict[str, str | int] = {
    "x-queue-type": "quorum",
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
}


def _listener_queue(subscription: Subscription, dlx: str) -> Queue:
    name = subscription.queue
    route: dict[str, str | int] = {"x-dead-letter-exchange": dlx, "x-dead-letter-routing-key": name}
    # Only where they are asked for: a queue's arguments cannot change after it is declared.
    order: dict[str, str | int] = {"x-single-active-consumer": True} if subscription.ordered else {}
    given = {argument: getattr(subscription, field) for field, argument in _LIMITS.items()}
    limits = {argument: value for argument, value in given.items() if value is not None}
    return _queue(name, _LOSSLESS | route | order | limits)


def _dead_letter_queue(queue: str) -> Queue:
    limit = DEAD_LETTER_DELIVERY_LIMIT
    return _queue(dead_letter_queue(queue), {"x-queue-type": "quorum", "x-delivery-limit": limit})


def _tier_queue(name: str, delay: timedelta) -> Queue:
    # To the default exchange and without a key of its own: a message goes to the queue that its key names.
    ttl = round(delay / _MILLISECOND)
    return _queue(name, _LOSSLESS | {"x-dead-letter-exchange": "", "x-message-ttl": ttl})


def _queue(name: str, arguments: dict[str, str | int]) -> Queue:
    return Queue(name, tuple(sorted(arguments.items())))


def _described(subscription: Subscription) -> str:
    seconds = ", ".join(f"{delay.total_seconds():.10g}" for delay in subscription.delays)
    return f"({seconds}) s for {', '.join(map(repr, subscription.binding_keys))}"
