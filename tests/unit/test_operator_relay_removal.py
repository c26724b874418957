from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from outbox.topology import Binding, Subscription, topology
from outbox_operator.broker.actions import RemoveExchange, RemoveQueue, RemoveUser
from outbox_operator.broker.live_snapshot import LiveSnapshot
from outbox_operator.broker.snapshot import BrokerProblem, ObservedBinding, ObservedUser, Snapshot
from outbox_operator.broker.topology_plan import topology_actions
from outbox_operator.planning.relay_removal import DepartingRelay, exchange_of_invalid, relay_removal
from outbox_operator.planning.removal import SKIP, Patience, Removal
from outbox_operator.resources import OutboxRelay

TIER = "outbox.delay_60s"
DELETED = datetime(2030, 1, 1, tzinfo=UTC)
PATIENCE = Patience(broker=timedelta(minutes=5), counts=timedelta(seconds=6))
AWAY = BrokerProblem("Unreachable", "http://rabbit:15672 cannot be reached")
USER = "outbox.relay.shop.shop.11111111-0a1b2c3d"
SUBSCRIPTION = Subscription("shop.mail", ("a",), (timedelta(minutes=1),))


def relay(policy: str = "Delete", *, has_exchange: bool = True, is_skipped: bool = False) -> OutboxRelay:
    return OutboxRelay.model_validate(
        {
            "metadata": {
                "name": "shop",
                "namespace": "shop",
                "uid": "11111111-2222",
                "deletionTimestamp": DELETED,
                "annotations": {SKIP: "yes"} if is_skipped else {},
            },
            "spec": {
                "database": {"secretRef": {"name": "d"}},
                "broker": {"secretRef": {"name": "b"}},
                "deletionPolicy": policy,
            },
            "status": {"exchange": "outbox"} if has_exchange else {},
        }
    )


def made(*, has_listener: bool = False, messages: int = 0) -> Snapshot:
    """A broker with the exchanges and a tier; the latter with messages."""
    live = LiveSnapshot(Snapshot({}, {}, {}, {USER: ObservedUser(USER, "", "", None)}))
    for action in topology_actions(topology("outbox", [SUBSCRIPTION]), "shop/mail", live.view).actions:
        live.apply(action, "key")
    if not has_listener:
        for name in ("shop.mail", "shop.mail.dlq"):
            live.apply(RemoveQueue(name, if_empty=False), None)
    tier = replace(live.view.queues[TIER], messages=messages)
    return replace(live.view, queues={**live.view.queues, TIER: tier})


def step(
    who: OutboxRelay, broker: Snapshot | BrokerProblem | None = None, after: float = 0, **seen: Any
) -> Removal:
    nobody: dict[str, Any] = dict.fromkeys(("others", "heirs", "perhaps", "leaving"), ())
    nobody["needed_tiers"] = frozenset()
    view = DepartingRelay(relay=who, broker=broker or made(), **{**nobody, **seen})
    return relay_removal(view, DELETED + timedelta(seconds=after), PATIENCE)


@pytest.mark.parametrize("policy", ["DeleteIfEmpty", "Delete"])
def test_the_tiers_go_then_the_exchanges_and_the_user(policy: str) -> None:
    if_unused = policy == "DeleteIfEmpty"
    assert step(relay(policy)) == Removal(
        (
            RemoveExchange(TIER),
            RemoveQueue(TIER, if_empty=True),
            RemoveExchange("outbox", if_unused),
            RemoveExchange("outbox.dlx", if_unused),
            RemoveUser(USER),
        ),
        stops_pods=True,
    )


@pytest.mark.parametrize("who", [relay("Retain"), relay(has_exchange=False)], ids=["Retain", "never had"])
@pytest.mark.parametrize("broker", [AWAY, None], ids=["away", "there"])
def test_nothing_is_removed_that_is_retained_or_was_never_its_own(
    who: OutboxRelay, broker: BrokerProblem | None
) -> None:
    assert step(who, broker, leaving=("shop/mail",)) == Removal()


def test_what_is_not_there_any_more_is_not_removed() -> None:
    assert step(relay(), Snapshot({}, {}, {}, None)) == Removal(stops_pods=True)


def test_an_exchange_of_another_kind_is_left() -> None:
    there = made()
    exchanges = {**there.exchanges, "outbox": replace(there.exchanges["outbox"], kind="direct")}
    found = step(relay(), replace(there, exchanges=exchanges))
    assert found.actions == ()
    assert 'not deleted, as it is not what was made: exchange "outbox"' in (found.given_up or "")


def test_a_tier_that_a_listener_needs_stays() -> None:
    found = step(relay(), made(has_listener=True), needed_tiers=frozenset({TIER}))
    assert RemoveExchange("outbox") in found.actions
    assert RemoveExchange(TIER) not in found.actions


def test_a_tier_with_messages_stays_where_all_is_deleted() -> None:
    found = step(relay(), made(messages=1))
    assert found.waiting_for is None
    assert RemoveQueue(TIER, if_empty=True) not in found.actions


@pytest.mark.parametrize(
    ("broker", "words"),
    [
        (made(has_listener=True), '2 queues are still bound to it, such as "shop.mail"; delete their listen'),
        (made(messages=3), f'delay tier "{TIER}" has 3 messages; wait for them'),
    ],
)
def test_delete_if_empty_waits_for_what_is_left(broker: Snapshot, words: str) -> None:
    found = step(relay("DeleteIfEmpty"), broker, after=1e6)
    assert words in (found.waiting_for or "")
    assert found.actions == ()


def test_listeners_that_go_with_it_go_first() -> None:
    found = step(relay(), leaving=("shop/mail",))
    assert found == Removal(
        waiting_for='exchange "outbox": OutboxListener shop/mail is being deleted and needs it'
    )


def test_what_another_relay_has_too_stays() -> None:
    found = step(relay(), others=("shop/second",))
    assert found == Removal(given_up='exchange "outbox" was left, as OutboxRelay shop/second has it too')


def test_of_relays_that_go_together_one_removes_what_they_share() -> None:
    assert step(relay(), heirs=("shop/third",)) == Removal((RemoveUser(USER),), stops_pods=True)


def test_what_another_relay_may_have_too_stays() -> None:
    waiting = step(relay(), perhaps=("shop/second",), after=299)
    assert waiting.actions == ()
    assert "OutboxRelay shop/second may have it too" in (waiting.waiting_for or "")
    assert "was left on the broker after 5m" in (step(relay(), perhaps=("a/b",), after=300).given_up or "")


def test_a_broker_that_is_away_is_waited_for_and_given_up() -> None:
    assert (
        step(relay(), AWAY, after=299).waiting_for == f'exchange "outbox" cannot be removed: {AWAY.message}'
    )
    assert step(relay(), AWAY, after=300) == Removal(
        given_up=f'exchange "outbox" was left on the broker after 5m: {AWAY.message}'
    )


def test_the_annotation_lets_it_go_at_once_whoever_else_goes() -> None:
    found = step(relay(is_skipped=True), AWAY, leaving=("shop/mail",))
    left = f'exchange "outbox" was left on the broker, as the annotation {SKIP} asks'
    assert found == Removal(given_up=left)


@pytest.mark.parametrize("policy", ["DeleteIfEmpty", "Delete"])
@pytest.mark.parametrize(
    ("owner", "installation", "words"),
    [
        ("shop/other", "", "OutboxListener shop/other uses it too"),
        ("shop/mail", "there", "OutboxListener shop/mail of installation there uses it too"),
        ("outbox", "there", "the operator of installation there uses it too"),
    ],
)
def test_an_exchange_that_others_have_bound_stays(
    policy: str, owner: str, installation: str, words: str
) -> None:
    bound = ObservedBinding(Binding("outbox", "theirs", "a"), "~", owner, installation)
    found = step(relay(policy), shared_with=(bound,))
    assert found.actions == (RemoveUser(USER),)
    assert found.given_up == f'exchange "outbox" was left, as {words}'


@pytest.mark.parametrize(
    ("manifest", "exchange"),
    [
        ({"spec": {"exchange": "events", "replicas": -1}}, "events"),
        ({"spec": {"replicas": -1}}, "outbox"),
        ({"spec": {"exchange": 7}}, None),
        ({"spec": None}, None),
        ({}, None),
    ],
)
def test_the_exchange_of_an_invalid_relay_is_what_can_be_read(
    manifest: dict[str, Any], exchange: str | None
) -> None:
    assert exchange_of_invalid(manifest) == exchange
