from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from outbox.topology import Binding
from outbox_operator.broker.snapshot import BrokerProblem, ObservedBinding, ObservedQueue, Snapshot
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


def after(before: Calm, broker: Snapshot | BrokerProblem, now: datetime, *, has_pods: bool = False) -> Calm:
    return calm_after(before, LISTENER, "outbox", broker, has_pods=has_pods, now=now)


CALM = Calm(queue=THEN, dead_letters=THEN, letters_unbound=THEN, tiers=THEN, stopped=THEN)


def test_it_is_calm_since_the_first_look_that_found_nothing() -> None:
    nothing = seen(queue=0, dlq=0, tier=0)
    assert after(Calm(), nothing, THEN) == CALM
    assert after(CALM, nothing, NOW) == CALM


@pytest.mark.parametrize(("name", "ended"), [("queue", "queue"), ("dlq", "dead_letters"), ("tier", "tiers")])
def test_a_message_ends_the_calm_of_its_queue_alone(name: str, ended: str) -> None:
    there = seen(**{"queue": 0, name: 1})
    assert after(CALM, there, NOW) == replace(CALM, **dict[str, Any]({ended: None}))


def test_a_queue_whose_messages_nobody_counts_is_not_calm() -> None:
    there = seen(queue=0, dlq=0)
    queues = {name: replace(queue, is_counted=False) for name, queue in there.queues.items()}
    assert after(CALM, replace(there, queues=queues), NOW) == replace(CALM, queue=None, dead_letters=None)


def test_a_queue_with_a_binding_is_not_calm() -> None:
    theirs = ObservedBinding(Binding("outbox", "shop.mail", "a"), "a", owner=None)
    there = replace(seen(queue=0), bindings={"shop.mail": (theirs,)})
    assert after(CALM, there, NOW) == replace(CALM, queue=None)


def test_what_concerns_others_does_not_disturb_it() -> None:
    assert after(CALM, seen(queue=0, other=1), NOW) == CALM


def test_calm_begins_anew_after_a_message() -> None:
    disturbed = after(CALM, seen(queue=1, dlq=1, tier=1), THEN)
    assert after(disturbed, seen(queue=0), NOW) == replace(CALM, queue=NOW, dead_letters=NOW, tiers=NOW)


def test_a_queue_that_is_gone_is_remembered_as_such() -> None:
    gone = after(CALM, seen(), NOW)
    assert gone == replace(CALM, removed=NOW)
    assert after(gone, seen(queue=0), NOW).removed is None


def test_pods_end_the_time_without_pods() -> None:
    assert after(CALM, seen(queue=0), NOW, has_pods=True) == replace(CALM, stopped=None)


def test_while_nobody_can_look_it_is_not_calm() -> None:
    away = BrokerProblem("Unreachable", "it is away")
    assert after(CALM, away, NOW) == Calm(stopped=THEN)
