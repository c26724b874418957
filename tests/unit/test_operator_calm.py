from datetime import UTC, datetime, timedelta

from outbox_operator.broker.snapshot import BrokerProblem, ObservedQueue, Snapshot
from outbox_operator.planning.calm import Calm, calm_after
from outbox_operator.resources import OutboxListener

THEN = datetime(2030, 1, 1, tzinfo=UTC)
NOW = THEN + timedelta(seconds=5)
LISTENER = OutboxListener.model_validate(
    {
        "metadata": {"name": "mail", "namespace": "shop"},
        "spec": {"relayRef": {"name": "shop"}, "bindingKeys": ["a"], "retryDelays": ["1s", "1m"]},
    }
)


def seen(**messages: int) -> Snapshot:
    names = {
        "queue": "shop.mail",
        "dlq": "shop.mail.dlq",
        "tier": "outbox.delay_60s",
        "other": "outbox.delay_5s",
    }
    queues = {
        names[each]: ObservedQueue(names[each], {}, durable=True, messages=count)
        for each, count in messages.items()
    }
    return Snapshot({}, queues, {}, None)


def test_it_is_calm_since_the_first_look_that_found_nothing() -> None:
    first = calm_after(Calm(), LISTENER, "outbox", seen(queue=0, tier=0), THEN)
    assert first == Calm(THEN, THEN)
    assert calm_after(first, LISTENER, "outbox", seen(queue=0, tier=0), NOW) == Calm(THEN, THEN)


def test_a_message_in_the_queue_ends_its_calm_alone() -> None:
    assert calm_after(Calm(THEN, THEN), LISTENER, "outbox", seen(queue=1), NOW) == Calm(None, THEN)


def test_a_message_in_a_tier_of_its_own_ends_the_calm_of_the_tiers_alone() -> None:
    assert calm_after(Calm(THEN, THEN), LISTENER, "outbox", seen(tier=1), NOW) == Calm(THEN, None)


def test_what_concerns_others_does_not_disturb_it() -> None:
    assert calm_after(Calm(THEN, THEN), LISTENER, "outbox", seen(other=1, dlq=1), NOW) == Calm(THEN, THEN)


def test_calm_begins_anew_after_a_message() -> None:
    disturbed = calm_after(Calm(THEN, THEN), LISTENER, "outbox", seen(queue=1, tier=1), THEN)
    assert calm_after(disturbed, LISTENER, "outbox", seen(), NOW) == Calm(NOW, NOW)


def test_while_nobody_can_look_it_is_not_calm() -> None:
    away = BrokerProblem("Unreachable", "it is away")
    assert calm_after(Calm(THEN, THEN), LISTENER, "outbox", away, NOW) == Calm()
