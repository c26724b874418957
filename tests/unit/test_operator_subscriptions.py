from datetime import timedelta

import pytest

from outbox.topology import Subscription, TopologyError, topology
from outbox_operator.resources import OutboxListener, OutboxRelay
from outbox_operator.subscriptions import exchange_of, queue_of, subscription_of
from tests.operator.manifests import FULL_LISTENER, FULL_RELAY, LISTENER, Manifest, changed


def _listener(manifest: Manifest = LISTENER, **changes: object) -> OutboxListener:
    namespaced = changed(manifest, {".metadata.namespace": "shop"})
    return OutboxListener.model_validate(changed(namespaced, dict(changes)))


def test_a_queue_has_the_name_of_its_listener() -> None:
    assert queue_of(_listener()) == "shop.send-welcome-mail"


def test_a_queue_has_the_name_that_was_asked_for() -> None:
    assert queue_of(_listener(queue="mails")) == "mails"


def test_a_listener_is_a_subscription() -> None:
    delays = (timedelta(milliseconds=300), timedelta(minutes=90))
    keys = ("user.created", "order.*", "audit.#")
    assert subscription_of(_listener(FULL_LISTENER)) == Subscription(
        "mails", keys, delays, ordered=True, max_length=1000, max_bytes=1_000_000_000, delivery_limit=5
    )


def test_a_listener_without_limits_has_those_of_a_listener_in_code() -> None:
    made = subscription_of(_listener())
    assert made == Subscription(made.queue, made.binding_keys, made.delays)


def test_a_subscription_makes_a_topology() -> None:
    relay = OutboxRelay.model_validate(FULL_RELAY)
    made = topology(exchange_of(relay), [subscription_of(_listener(retryDelays=["300ms"]))])
    assert [queue.name for queue in made.queues] == [
        "shop.send-welcome-mail.dlq",
        "shop events.delay_300ms",
        "shop.send-welcome-mail",
    ]


def test_a_queue_of_the_brokers_own_is_refused_with_the_listeners_name() -> None:
    listener = OutboxListener.model_validate(changed(LISTENER, {".metadata.namespace": "amq"}))
    with pytest.raises(TopologyError) as raised:
        subscription_of(listener)
    assert str(raised.value) == (
        "OutboxListener amq/send-welcome-mail: queue 'amq.send-welcome-mail': names that start with 'amq.' "
        "belong to the broker; rename it; set spec.queue"
    )
