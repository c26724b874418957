from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from outbox.topology import Binding
from outbox_operator.broker.actions import MakeBinding, RemoveBinding, RemoveQueue, RemoveUser
from outbox_operator.broker.live_snapshot import LiveSnapshot
from outbox_operator.broker.snapshot import BrokerProblem, ObservedBinding, ObservedUser, Snapshot
from outbox_operator.broker.topology_plan import topology_actions
from outbox_operator.planning.calm import Calm
from outbox_operator.planning.claims import Hold, Obstacle, Ownership
from outbox_operator.planning.listener_plan import needed_topology
from outbox_operator.planning.listener_removal import DepartingListener, listener_removal
from outbox_operator.planning.marks import Domain, Marks
from outbox_operator.planning.removal import SKIP, Patience, Removal
from outbox_operator.resources import OutboxListener, OutboxRelay

QUEUE, DLQ, TIER = "shop.mail", "shop.mail.dlq", "outbox.delay_60s"
DELETED = datetime(2030, 1, 1, tzinfo=UTC)
PATIENCE = Patience(broker=timedelta(minutes=5), counts=timedelta(seconds=6))
CALM = Calm(queue=DELETED, dead_letters=DELETED, letters_unbound=DELETED, tiers=DELETED, stopped=DELETED)
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


def unbound(
    who: OutboxListener, names: tuple[str, ...] = (QUEUE,), *, without: tuple[str, ...] = (), **messages: int
) -> Snapshot:
    """The same, after the bindings of these are gone, and those queues."""
    there = made(who, **messages)
    bindings = {name: bound for name, bound in there.bindings.items() if name not in names}
    queues = {name: queue for name, queue in there.queues.items() if name not in without}
    return replace(there, bindings=bindings, queues=queues)


def removal(queue: str, *, if_empty: bool) -> RemoveQueue:
    return RemoveQueue(queue, if_empty, owner="shop/mail", installation="here")


def owning(broker: Snapshot | BrokerProblem, **known: Any) -> Ownership:
    """What the broker shows of whose the queues are."""
    if isinstance(broker, BrokerProblem):
        return Ownership()
    return Ownership(marks=Marks.on((QUEUE, DLQ), broker, Domain("here")), **known)


def bound_by(who: OutboxListener, owner: str, installation: str = "", queue: str = QUEUE) -> Snapshot:
    """A broker with all that a listener needs, and a binding that another one has made."""
    there = made(who)
    other = ObservedBinding(Binding("outbox", queue, "theirs"), "theirs~", owner, installation)
    return replace(there, bindings={**there.bindings, queue: (*there.bindings[queue], other)})


def step(
    who: OutboxListener, broker: Snapshot | BrokerProblem | None = None, after: float = 6, **seen: Any
) -> Removal:
    """The step of a listener that was deleted so many seconds ago."""
    circumstances: dict[str, Any] = {
        "owning": owning(broker or made(who)),
        "has_pods": False,
        "calm": CALM,
        "relay": RELAY,
        **seen,
    }
    view = DepartingListener(listener=who, broker=broker or made(who), **circumstances)
    return listener_removal(view, DELETED + timedelta(seconds=after), PATIENCE)


def test_delete_removes_the_bindings_the_queue_its_dead_letters_and_the_user() -> None:
    found = step(listener("Delete"))
    assert [type(action) for action in found.actions[:1]] == [RemoveBinding]
    queues = (removal(QUEUE, if_empty=False), removal(DLQ, if_empty=False))
    assert found.actions[1:] == (*queues, RemoveUser(USER))
    assert found.waiting_for is found.given_up is None


IF_EMPTY = listener("DeleteIfEmpty")


@pytest.mark.parametrize("who", [IF_EMPTY, listener("DeleteIfEmpty", retryDelays=[])], ids=["tiers", "none"])
def test_delete_if_empty_unbinds_drains_stops_and_then_removes_one_queue_after_the_other(
    who: OutboxListener,
) -> None:
    at = DELETED + timedelta(seconds=6)
    unbinding = step(who, made(who))
    assert [type(action) for action in unbinding.actions] == [RemoveBinding]
    assert (unbinding.stops_pods, unbinding.look_again_after) == (False, timedelta())
    draining = step(who, unbound(who), after=5, has_pods=True, calm=replace(CALM, stopped=None))
    assert (draining.actions, draining.stops_pods) == ((), False)
    assert "counts messages some seconds late" in (draining.waiting_for or "")
    stopping = step(who, unbound(who), has_pods=True, calm=replace(CALM, stopped=None))
    assert (stopping.actions, stopping.stops_pods) == ((), True)
    assert "its pods have ended" in (stopping.waiting_for or "")
    early = step(who, unbound(who), after=11, calm=replace(CALM, stopped=at))
    assert early.actions == ()
    assert "counts messages some seconds late" in (early.waiting_for or "")
    removing = step(who, unbound(who), after=12, calm=replace(CALM, stopped=at))
    assert removing.actions == (removal(QUEUE, if_empty=True),)
    assert removing.waiting_for
    closing = step(who, unbound(who, without=(QUEUE,)), after=12, calm=replace(CALM, removed=at))
    closed = Binding("outbox.dlx", DLQ, DLQ)
    assert closing.actions[0] == MakeBinding(closed, "shop/mail", "here")
    assert [type(action) for action in closing.actions[1:]] == [RemoveBinding]
    assert closing.waiting_for
    marked = {DLQ: (ObservedBinding(closed, "key", "shop/mail", "here"),)}
    gone = replace(unbound(who, without=(QUEUE,)), bindings=marked)
    for calm in (replace(CALM, removed=at), replace(CALM, letters_unbound=at, removed=DELETED)):
        assert step(who, gone, after=11, calm=calm).actions == ()
    last = step(who, gone, after=12, calm=replace(CALM, removed=at, letters_unbound=at))
    assert last.actions == (removal(DLQ, if_empty=True), RemoveUser(USER))
    assert last.waiting_for is last.given_up is None


@pytest.mark.parametrize("unknown", ["queue", "dead_letters", "tiers"])
def test_delete_if_empty_removes_nothing_that_was_not_seen_calm(unknown: str) -> None:
    found = step(IF_EMPTY, unbound(IF_EMPTY), after=60, calm=replace(CALM, **dict[str, Any]({unknown: None})))
    assert found.actions == ()
    assert found.waiting_for


def test_a_dead_letter_that_comes_after_the_queue_is_gone_is_kept() -> None:
    found = step(
        IF_EMPTY,
        unbound(IF_EMPTY, without=(QUEUE,), dlq=1),
        after=1e6,
        calm=replace(CALM, removed=DELETED, dead_letters=None),
    )
    assert found.actions == ()
    assert f'queue "{DLQ}" has 1 message' in (found.waiting_for or "")


def test_a_queue_whose_messages_nobody_counts_is_kept() -> None:
    there = unbound(IF_EMPTY)
    queues = {**there.queues, QUEUE: replace(there.queues[QUEUE], is_counted=False)}
    found = step(IF_EMPTY, replace(there, queues=queues), after=1e6)
    assert found.actions == ()
    assert f'does not tell how many messages queue "{QUEUE}" has' in (found.waiting_for or "")


@pytest.mark.parametrize(
    ("who", "seen"),
    [
        pytest.param(listener("Retain"), {}, id="policy Retain"),
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
    assert removal(QUEUE, if_empty=False) in found.actions


@pytest.mark.parametrize("policy", ["Delete", "DeleteIfEmpty"])
@pytest.mark.parametrize(
    ("hold", "words"), [(Hold.OWNED, "has it"), (Hold.POSSIBLE, "may have it"), (Hold.FOREIGN, "has it")]
)
def test_a_queue_that_another_listener_has_is_only_unbound(policy: str, hold: Hold, words: str) -> None:
    who = listener(policy)
    there = bound_by(who, "shop/other")
    found = step(who, there, owning=owning(there, obstacle=Obstacle(QUEUE, "shop/other", hold)))
    assert found.actions == (
        RemoveBinding(Binding("outbox", QUEUE, "user.created"), "key"),
        RemoveUser(USER),
    )
    assert found.stops_pods
    assert (found.waiting_for, found.given_up) == (
        None,
        f'queue "{QUEUE}" was left, as OutboxListener shop/other {words}',
    )


@pytest.mark.parametrize("policy", ["Delete", "DeleteIfEmpty"])
def test_a_queue_without_the_mark_of_the_listener_is_left(policy: str) -> None:
    who = listener(policy)
    found = step(who, replace(made(who), bindings={}), after=1e6)
    assert found.actions == (RemoveUser(USER),)
    assert found.given_up == f'queue "{QUEUE}" was left, as it has no binding with the mark of this listener'


@pytest.mark.parametrize("policy", ["Delete", "DeleteIfEmpty"])
@pytest.mark.parametrize(
    ("owner", "installation"), [("shop/other", "here"), ("shop/other", "there"), ("shop/mail", "there")]
)
@pytest.mark.parametrize("queue", [QUEUE, DLQ])
def test_a_queue_that_another_listener_has_marked_is_never_removed(
    policy: str, owner: str, installation: str, queue: str
) -> None:
    who = listener(policy)
    there = bound_by(who, owner, installation, queue)
    waiting = step(who, there, after=60)
    assert f"OutboxListener {owner} of installation {installation} too" in (waiting.waiting_for or "")
    given_up = step(who, there, after=300)
    assert f"OutboxListener {owner}" in (given_up.given_up or "")
    for found in (waiting, given_up):
        assert [type(action) for action in found.actions] == [RemoveBinding]


def test_bindings_of_listeners_that_are_gone_go_with_the_queue() -> None:
    who = listener("Delete")
    there = bound_by(who, "shop/gone", "here")
    [left] = [each for each in there.bindings[QUEUE] if each.owner == "shop/gone"]
    found = step(who, there, owning=owning(there, stale=(left,)))
    assert RemoveBinding(left.binding, left.properties_key) in found.actions
    assert removal(QUEUE, if_empty=False) in found.actions


def test_the_dead_letter_queue_is_marked_before_the_queue_is_unbound() -> None:
    who = listener("DeleteIfEmpty")
    there = made(who)
    [letters] = there.bindings[DLQ]
    bare = replace(there, bindings={**there.bindings, DLQ: (replace(letters, owner=None),)})
    found = step(who, bare)
    assert found.actions[0] == MakeBinding(letters.binding, "shop/mail", "here")
    assert [type(action) for action in found.actions[1:]] == [RemoveBinding]


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
        ({"queue": 1}, f'queue "{QUEUE}" has 1 message; consume them, purge it'),
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
    calm = replace(CALM, tiers=None)
    limit = {"Delete": 60, "DeleteIfEmpty": 70}[policy] + 6
    waiting = step(who, unbound(who, tier=1), after=limit - 1, calm=calm)
    assert f'delay tier "{TIER}"' in (waiting.waiting_for or "")
    assert f"at 2030-01-01 00:01:{limit - 60:02}" in (waiting.waiting_for or "")
    assert removal(QUEUE, if_empty=policy == "DeleteIfEmpty") in (
        step(who, unbound(who, tier=1), after=limit, calm=calm).actions
    )


def test_workers_that_drain_a_queue_for_an_hour_may_still_send_retries_then() -> None:
    drained = replace(CALM, queue=DELETED + timedelta(hours=1), tiers=None)
    there = unbound(IF_EMPTY, tier=1)
    assert step(IF_EMPTY, there, after=3600 + 60, calm=drained).actions == ()
    assert step(IF_EMPTY, there, after=3600 + 76, calm=drained).actions


def test_a_retry_that_pods_sent_before_they_ended_is_waited_for() -> None:
    stopped = replace(CALM, stopped=DELETED + timedelta(hours=1), tiers=None)
    there = unbound(IF_EMPTY, tier=1)
    waiting = step(IF_EMPTY, there, after=3600 + 65, calm=stopped)
    assert f'delay tier "{TIER}"' in (waiting.waiting_for or "")
    assert step(IF_EMPTY, there, after=3600 + 66, calm=stopped).actions


def test_that_tiers_are_empty_is_believed_when_the_broker_has_had_time_to_count() -> None:
    early = step(listener("Delete"), after=5)
    assert "counts messages some seconds late" in (early.waiting_for or "")
    assert early.look_again_after == PATIENCE.counts
    assert step(listener("Delete"), after=6).waiting_for is None


@pytest.mark.parametrize("spec", [{"retryDelays": []}, {"ordered": True}], ids=["no delays", "ordered"])
def test_delete_without_tiers_has_nothing_to_wait_for(spec: dict[str, Any]) -> None:
    assert step(listener("Delete", **spec), after=0, calm=Calm(), has_pods=True).waiting_for is None


def test_delete_waits_for_its_pods_but_not_longer_than_they_may_take() -> None:
    who = listener("Delete", worker={"image": "shop:1", "shutdownTimeout": "2m"})
    found = step(who, after=120, has_pods=True)
    assert found.stops_pods
    assert "its pods may still send retries" in (found.waiting_for or "")
    assert step(who, after=120 + 60 + 6, has_pods=True).waiting_for is None


def test_delete_if_empty_lets_its_pods_work_while_there_is_a_message() -> None:
    who = listener("DeleteIfEmpty", worker={"image": "shop:1"})
    found = step(who, unbound(who, queue=1), has_pods=True, calm=replace(CALM, queue=None, stopped=None))
    assert not found.stops_pods
    assert "let workers empty it" in (found.waiting_for or "")


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


def test_a_relay_that_cannot_be_read_is_waited_for_and_given_up() -> None:
    waiting = step(listener(), AWAY, after=1, relay=None, is_relay_invalid=True)
    assert waiting.waiting_for
    assert step(listener(), AWAY, after=300, relay=None, is_relay_invalid=True).given_up


def test_without_its_relay_nobody_knows_the_broker() -> None:
    found = step(listener(), AWAY, relay=None)
    assert found == Removal(given_up=f'queue "{QUEUE}" was left on the broker, since its OutboxRelay is gone')


def test_a_queue_that_never_had_its_mark_is_left_however_calm_it_is() -> None:
    gone = unbound(IF_EMPTY, (QUEUE, DLQ), without=(QUEUE,))
    at = DELETED + timedelta(seconds=6)
    found = step(IF_EMPTY, gone, after=1e6, calm=replace(CALM, removed=at, letters_unbound=at))
    assert not any(isinstance(action, RemoveQueue) for action in found.actions)
    assert "has no binding with the mark" in (found.given_up or "")
