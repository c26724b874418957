from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from outbox_operator.broker.actions import RemoveBinding, RemoveQueue, RemoveUser
from outbox_operator.broker.live_snapshot import LiveSnapshot
from outbox_operator.broker.snapshot import BrokerProblem, ObservedUser, Snapshot
from outbox_operator.broker.topology_plan import topology_actions
from outbox_operator.planning.calm import Calm
from outbox_operator.planning.listener_plan import needed_topology
from outbox_operator.planning.listener_removal import DepartingListener, listener_removal
from outbox_operator.planning.removal import SKIP, Patience, Removal
from outbox_operator.resources import OutboxListener, OutboxRelay

QUEUE, DLQ, TIER = "shop.mail", "shop.mail.dlq", "outbox.delay_60s"
DELETED = datetime(2030, 1, 1, tzinfo=UTC)
PATIENCE = Patience(broker=timedelta(minutes=5), counts=timedelta(seconds=6))
CALM = Calm(DELETED, DELETED)
AWAY = BrokerProblem("Unreachable", "http://rabbit:15672 cannot be reached")
RELAY = OutboxRelay.model_validate(
    {
        "metadata": {"name": "shop", "namespace": "shop"},
        "spec": {"database": {"secretRef": {"name": "d"}}, "broker": {"secretRef": {"name": "b"}}},
    }
)
USER = "outbox.listener.shop.mail.11111111-0a1b2c3d"


def listener(policy: str = "Delete", *, has_queue: bool = True, **spec: Any) -> OutboxListener:
    return OutboxListener.model_validate(
        {
            "metadata": {
                "name": "mail",
                "namespace": "shop",
                "uid": "11111111-2222",
                "deletionTimestamp": DELETED,
                "annotations": spec.pop("annotations", {}),
            },
            "spec": {
                "relayRef": {"name": "shop"},
                "bindingKeys": ["user.created"],
                "retryDelays": ["10s", "1m"],
                "deletionPolicy": policy,
                **spec,
            },
            "status": {"queue": QUEUE} if has_queue else {},
        }
    )


def made(who: OutboxListener, **messages: int) -> Snapshot:
    """A broker with all that a listener needs, and messages in its queue, dlq and tier."""
    live = LiveSnapshot(Snapshot({}, {}, {}, {USER: ObservedUser(USER, "", "", None)}))
    for action in topology_actions(needed_topology(who, RELAY), who.metadata.path, live.view).actions:
        live.apply(action, "key")
    names = {"queue": QUEUE, "dlq": DLQ, "tier": TIER}
    queues = dict(live.view.queues)
    for each, count in messages.items():
        queues[names[each]] = replace(queues[names[each]], messages=count)
    return replace(live.view, queues=queues)


def step(
    who: OutboxListener, broker: Snapshot | BrokerProblem | None = None, after: float = 6, **seen: Any
) -> Removal:
    """The step of a listener that was deleted so many seconds ago."""
    circumstances: dict[str, Any] = {
        "is_owner": True,
        "has_pods": False,
        "calm": CALM,
        "relay": RELAY,
        **seen,
    }
    view = DepartingListener(listener=who, broker=broker or made(who), **circumstances)
    return listener_removal(view, DELETED + timedelta(seconds=after), PATIENCE)


@pytest.mark.parametrize("policy", ["DeleteIfEmpty", "Delete"])
def test_the_bindings_go_first_then_the_queue_its_dead_letters_and_the_user(policy: str) -> None:
    found = step(listener(policy))
    if_empty = policy == "DeleteIfEmpty"
    assert [type(action) for action in found.actions[:1]] == [RemoveBinding]
    assert found.actions[1:] == (RemoveQueue(QUEUE, if_empty), RemoveQueue(DLQ, if_empty), RemoveUser(USER))
    assert found.waiting_for is found.given_up is None


@pytest.mark.parametrize(
    ("who", "seen"),
    [
        pytest.param(listener("Retain"), {}, id="policy Retain"),
        pytest.param(listener("Delete"), {"is_owner": False}, id="an older one has the queue"),
        pytest.param(listener("Delete", has_queue=False), {"broker": AWAY}, id="never had, broker away"),
        pytest.param(
            listener("Delete", has_queue=False),
            {"broker": Snapshot({}, {}, {}, None)},
            id="never had a queue",
        ),
    ],
)
def test_nothing_is_removed_that_was_never_its_own(who: OutboxListener, seen: dict[str, Any]) -> None:
    assert step(who, **seen) == Removal()


def test_a_queue_that_it_bound_is_its_own_though_the_status_does_not_say_so_yet() -> None:
    found = step(listener("Delete", has_queue=False), made(listener()))
    assert RemoveQueue(QUEUE, if_empty=False) in found.actions


def test_a_queue_of_another_kind_is_left() -> None:
    who = listener()
    there = made(who)
    queues = {**there.queues, QUEUE: replace(there.queues[QUEUE], arguments={})}
    found = step(who, replace(there, queues=queues))
    assert found.actions == ()
    assert found.given_up is not None
    assert f'not deleted, as it is not what was made: queue "{QUEUE}"' in found.given_up


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ({"queue": 1}, f'queue "{QUEUE}" has 1 message; let workers empty it'),
        ({"queue": 1_200, "dlq": 3}, f'queue "{QUEUE}" has 1,200 messages'),
        ({"dlq": 3}, f'queue "{DLQ}" has 3 messages; redrive or purge them'),
    ],
)
def test_delete_if_empty_waits_for_messages_and_closes_the_way_in(
    messages: dict[str, int], words: str
) -> None:
    who = listener("DeleteIfEmpty")
    found = step(who, made(who, **messages), after=1e6)
    assert words in (found.waiting_for or "")
    assert [type(action) for action in found.actions] == [RemoveBinding]
    assert not found.stops_pods


def test_delete_does_not_wait_for_messages() -> None:
    who = listener("Delete")
    assert step(who, made(who, queue=5, dlq=5)).waiting_for is None


@pytest.mark.parametrize("policy", ["DeleteIfEmpty", "Delete"])
def test_a_busy_tier_is_waited_for_until_the_last_retry_must_be_back(policy: str) -> None:
    who = listener(policy)
    calm = Calm(queue=DELETED, tiers=None)
    limit = {"Delete": 60, "DeleteIfEmpty": 70}[policy] + 6
    waiting = step(who, made(who, tier=1), after=limit - 1, calm=calm)
    assert f'delay tier "{TIER}"' in (waiting.waiting_for or "")
    assert f"at 2030-01-01 00:01:{limit - 60:02}" in (waiting.waiting_for or "")
    assert step(who, made(who, tier=1), after=limit, calm=calm).waiting_for is None


def test_workers_that_drain_a_queue_for_an_hour_may_still_send_retries_then() -> None:
    who = listener("DeleteIfEmpty")
    drained = Calm(queue=DELETED + timedelta(hours=1), tiers=None)
    assert step(who, made(who, tier=1), after=3600 + 60, calm=drained).waiting_for
    assert step(who, made(who, tier=1), after=3600 + 76, calm=drained).waiting_for is None


@pytest.mark.parametrize("policy", ["DeleteIfEmpty", "Delete"])
def test_that_tiers_are_empty_is_believed_when_the_broker_has_had_time_to_count(policy: str) -> None:
    early = step(listener(policy), after=5)
    assert "counts messages some seconds late" in (early.waiting_for or "")
    assert early.look_again_after == PATIENCE.counts
    assert step(listener(policy), after=6).waiting_for is None


@pytest.mark.parametrize("spec", [{"retryDelays": []}, {"ordered": True}], ids=["no delays", "ordered"])
@pytest.mark.parametrize("policy", ["DeleteIfEmpty", "Delete"])
def test_without_tiers_there_is_nothing_to_wait_for(policy: str, spec: dict[str, Any]) -> None:
    assert step(listener(policy, **spec), after=0, calm=Calm(), has_pods=True).waiting_for is None


def test_delete_waits_for_its_pods_but_not_longer_than_they_may_take() -> None:
    who = listener("Delete", worker={"image": "shop:1", "shutdownTimeout": "2m"})
    found = step(who, after=120, has_pods=True)
    assert found.stops_pods
    assert "its pods may still send retries" in (found.waiting_for or "")
    assert step(who, after=120 + 60 + 6, has_pods=True).waiting_for is None


def test_delete_if_empty_lets_its_pods_work() -> None:
    who = listener("DeleteIfEmpty", worker={"image": "shop:1"})
    found = step(who, has_pods=True)
    assert not found.stops_pods
    assert found.waiting_for is None


def test_a_broker_that_is_away_is_waited_for_and_given_up() -> None:
    waiting = step(listener(), AWAY, after=298)
    assert waiting.waiting_for == f'queue "{QUEUE}" cannot be removed: {AWAY.message}'
    assert waiting.look_again_after == timedelta(seconds=2)
    assert step(listener(), AWAY, after=1).look_again_after == timedelta(seconds=5)
    assert step(listener(), AWAY, after=300) == Removal(
        given_up=f'queue "{QUEUE}" was left on the broker after 5m: {AWAY.message}'
    )


@pytest.mark.parametrize("broker", [AWAY, None], ids=["broker away", "messages in it"])
def test_the_annotation_lets_it_go_at_once(broker: BrokerProblem | None) -> None:
    who = listener("DeleteIfEmpty", annotations={SKIP: ""})
    found = step(who, broker or made(who, queue=1))
    assert found == Removal(given_up=f'queue "{QUEUE}" was left on the broker, as the annotation {SKIP} asks')


def test_without_its_relay_nobody_knows_the_broker() -> None:
    found = step(listener(), AWAY, relay=None)
    assert found == Removal(given_up=f'queue "{QUEUE}" was left on the broker, since its OutboxRelay is gone')
