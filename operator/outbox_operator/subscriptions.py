"""What a listener needs on the broker, as `outbox.topology` takes it."""

from outbox.topology import (
    Subscription,
    TopologyError,
    check_binding_key,
    check_exchange,
    check_queue,
    dead_letter_queue,
)
from outbox_operator.resources import OutboxListener, OutboxRelay


def queue_of(listener: OutboxListener) -> str:
    """The name of its queue: the one it asks for, else `{namespace}.{name}`."""
    return listener.spec.queue or f"{listener.metadata.namespace}.{listener.metadata.name}"


def queues_of(listener: OutboxListener) -> tuple[str, str]:
    """The names of its queue and of that one's dead-letter queue."""
    queue = queue_of(listener)
    return queue, dead_letter_queue(queue)


def exchange_of(relay: OutboxRelay) -> str:
    """The name of its exchange, or a `TopologyError` that names the relay and what is wrong."""
    try:
        check_exchange(relay.spec.exchange)
    except TopologyError as error:
        raise TopologyError(f"OutboxRelay {relay.metadata.path}: {error}") from error
    return relay.spec.exchange


def subscription_of(listener: OutboxListener) -> Subscription:
    """Its queue, topics, delays and limits, or a `TopologyError` that names the listener and what is wrong.

    The schema lets few mistakes through: a namespace `amq`, whose queues the broker keeps for itself.
    """
    queue, spec = queue_of(listener), listener.spec
    try:
        check_queue(queue)
        for key in spec.binding_keys:
            check_binding_key(key, queue)
    except TopologyError as error:
        raise TopologyError(f"OutboxListener {listener.metadata.path}: {error}; set spec.queue") from error
    return Subscription(
        queue,
        spec.binding_keys,
        spec.retry_delays,
        spec.ordered,
        max_length=spec.limits.max_length,
        max_bytes=spec.limits.max_bytes,
        delivery_limit=spec.limits.delivery_limit,
    )
