from dataclasses import replace
from datetime import timedelta

import pytest

from outbox.topology import Binding, Subscription, topology
from outbox_operator.broker.actions import RemoveBinding, RemoveExchange, RemoveQueue
from outbox_operator.broker.live_snapshot import LiveSnapshot
from outbox_operator.broker.removal_plan import binding_removal, tier_removal, unused_tiers
from outbox_operator.broker.snapshot import ObservedBinding, ObservedQueue, Snapshot
from outbox_operator.broker.topology_plan import topology_actions

TIERS = ("outbox.delay_10s", "outbox.delay_1s", "outbox.delay_300ms")
DELAYS = (timedelta(milliseconds=300), timedelta(seconds=1), timedelta(seconds=10))
MAIL = Subscription("shop.mail", ("user.created",), DELAYS)
EMPTY = Snapshot({}, {}, {}, None)


def with_tiers() -> Snapshot:
    live = LiveSnapshot(EMPTY)
    for action in topology_actions(topology("outbox", [MAIL]), "shop/mail", EMPTY).actions:
        live.apply(action, "key")
    return live.view


def with_bindings(tier: str, *owners: str | None, exchange: str | None = None) -> Snapshot:
    before = with_tiers()
    found = tuple(ObservedBinding(Binding(exchange or tier, tier, ""), "key", owner) for owner in owners)
    return replace(before, bindings={**before.bindings, tier: found})


def with_queue(tier: str, **changes: object) -> Snapshot:
    before = with_tiers()
    queue = replace(before.queues[tier], **changes)  # type: ignore[arg-type]
    return replace(before, queues={**before.queues, tier: queue})


def after_removal_of(tier: str) -> Snapshot:
    """The exchange is gone, and the queue is not, since it had a message."""
    live = LiveSnapshot(with_tiers())
    live.apply(RemoveExchange(tier), None)
    return live.view


def test_tiers_that_nobody_needs_are_unused() -> None:
    assert unused_tiers("outbox", (), with_tiers()) == TIERS


def test_a_tier_that_is_needed_stays() -> None:
    assert unused_tiers("outbox", {"outbox.delay_1s"}, with_tiers()) == (TIERS[0], TIERS[2])
    assert unused_tiers("outbox", TIERS, with_tiers()) == ()


@pytest.mark.parametrize(
    "snapshot",
    [
        pytest.param(with_queue("outbox.delay_1s", messages=1), id="with a message"),
        pytest.param(with_bindings("outbox.delay_1s", None), id="made by somebody else"),
        pytest.param(with_bindings("outbox.delay_1s", "outbox", None), id="shared with somebody else"),
        pytest.param(with_bindings("outbox.delay_1s", "orders"), id="with another mark"),
        pytest.param(with_bindings("outbox.delay_1s"), id="with an exchange and no binding"),
        pytest.param(with_bindings("outbox.delay_1s", "outbox", exchange="theirs"), id="fed by another"),
    ],
)
def test_a_tier_that_is_in_use_or_not_ours_stays(snapshot: Snapshot) -> None:
    assert "outbox.delay_1s" not in unused_tiers("outbox", (), snapshot)


def test_a_tier_whose_exchange_feeds_another_queue_stays() -> None:
    before = with_tiers()
    found = ObservedBinding(Binding("outbox.delay_1s", "tap", ""), "key", None)
    snapshot = replace(before, bindings={**before.bindings, "tap": (found,)})
    assert unused_tiers("outbox", (), snapshot) == (TIERS[0], TIERS[2])


def test_tiers_of_another_exchange_stay() -> None:
    assert unused_tiers("out", (), with_tiers()) == ()
    assert unused_tiers("outbox.delay_1s", (), with_tiers()) == ()


@pytest.mark.parametrize("name", ["outbox.delay_1", "outbox.delay_s", "outbox.delay_1s.dlq", "outbox.mails"])
def test_a_queue_with_another_name_is_no_tier(name: str) -> None:
    before = with_tiers()
    tier = replace(before.queues["outbox.delay_1s"], name=name)
    found = ObservedBinding(Binding(name, name, ""), "key", "outbox")
    snapshot = Snapshot({}, {name: tier}, {name: (found,)}, None)
    assert unused_tiers("outbox", (), snapshot) == ()


def test_a_tier_goes_exchange_first_so_that_nothing_comes_in() -> None:
    assert tier_removal("outbox.delay_1s", with_tiers()) == (
        RemoveExchange("outbox.delay_1s"),
        RemoveQueue("outbox.delay_1s", if_empty=True),
    )


def test_of_a_tier_that_another_installation_uses_only_our_mark_goes() -> None:
    name = "outbox.delay_1s"
    binding = Binding(name, name, "")
    ours = ObservedBinding(binding, "ours~", "outbox", "here")
    theirs = ObservedBinding(binding, "theirs~", "outbox", "there")
    shared = replace(with_tiers(), bindings={name: (ours, theirs)})
    assert name in unused_tiers("outbox", (), shared, "here")
    assert tier_removal(name, shared, "here") == (RemoveBinding(binding, "ours~"),)
    left = replace(shared, bindings={name: (theirs,)})
    assert name not in unused_tiers("outbox", (), left, "here")


def test_what_is_left_of_a_tier_goes_when_it_is_empty() -> None:
    left = after_removal_of("outbox.delay_1s")
    assert "outbox.delay_1s" in unused_tiers("outbox", (), left)
    busy = replace(left.queues["outbox.delay_1s"], messages=1)
    with_message = replace(left, queues={**left.queues, "outbox.delay_1s": busy})
    assert "outbox.delay_1s" not in unused_tiers("outbox", (), with_message)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("outbox.delay_1s", {}),
        ("outbox.delay_1s", {"x-message-ttl": 1000}),
        ("outbox.delay_2s", None),
        ("outbox.delay_1000ms", None),
        ("outbox.delay_99999999s", None),
    ],
)
def test_a_lone_queue_that_is_not_what_we_make_stays(name: str, arguments: dict[str, object] | None) -> None:
    ours = with_tiers().queues["outbox.delay_1s"].arguments
    queue = ObservedQueue(name, ours if arguments is None else arguments, durable=True, messages=0)
    assert unused_tiers("outbox", (), Snapshot({}, {name: queue}, {}, None)) == ()


def test_the_way_into_a_queue_is_closed_by_removing_what_its_listener_has_bound() -> None:
    before = with_tiers()
    foreign = ObservedBinding(Binding("outbox", "shop.mail", "x"), "theirs", None)
    bindings = {**before.bindings, "shop.mail": (*before.bindings["shop.mail"], foreign)}
    snapshot = replace(before, bindings=bindings)
    assert binding_removal("shop.mail", "shop/mail", snapshot) == (
        RemoveBinding(Binding("outbox", "shop.mail", "user.created"), "key"),
    )
    assert binding_removal("nowhere", "shop/mail", snapshot) == ()
