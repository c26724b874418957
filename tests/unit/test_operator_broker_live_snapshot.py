from datetime import timedelta

import pytest

from outbox.topology import Binding, Exchange, Queue, Subscription, topology
from outbox_operator.broker.actions import (
    Action,
    MakeBinding,
    MakeExchange,
    MakeQueue,
    MakeUser,
    Permissions,
    RemoveBinding,
    RemoveExchange,
    RemoveQueue,
    RemoveUser,
)
from outbox_operator.broker.live_snapshot import LiveSnapshot
from outbox_operator.broker.snapshot import ObservedQueue, Snapshot
from outbox_operator.broker.topology_plan import topology_actions
from outbox_operator.broker.user_plan import user_action

EMPTY = Snapshot({}, {}, {}, {})
WANTED = topology("outbox", [Subscription("mails", ("a", "b"), (timedelta(seconds=1),))])
ALL = topology_actions(WANTED, "shop/mails", EMPTY).actions
BINDING = Binding("outbox", "mails", "a")
RIGHTS = Permissions("^$", "^$", "^$")


def live(*actions: Action) -> LiveSnapshot:
    made = LiveSnapshot(EMPTY)
    for action in actions:
        made.apply(action, "key")
    return made


def test_what_was_planned_is_there_once_it_is_done() -> None:
    made = live(*ALL)
    assert topology_actions(WANTED, "shop/mails", made.view).actions == ()
    assert all(made.shows(action) for action in ALL)
    assert not any(live().shows(action) for action in ALL)


@pytest.mark.parametrize(
    "action",
    [
        MakeExchange(Exchange("outbox", "direct")),
        MakeQueue(Queue("mails", ())),
        MakeBinding(BINDING, "shop/else"),
        MakeUser("u", "p", RIGHTS),
        RemoveQueue("mails", if_empty=False),
    ],
)
def test_something_else_of_the_same_name_is_not_shown(action: Action) -> None:
    assert not live(*ALL).shows(action)


def test_a_queue_goes_with_its_bindings() -> None:
    view = live(*ALL, RemoveQueue("mails", if_empty=False)).view
    assert "mails" not in view.queues
    assert set(view.bindings) == {"mails.dlq", "outbox.delay_1s"}


def test_an_exchange_goes_with_its_bindings() -> None:
    view = live(*ALL, RemoveExchange("outbox")).view
    assert "outbox" not in view.exchanges
    assert set(view.bindings) == {"mails.dlq", "outbox.delay_1s"}


def test_one_binding_goes_and_the_others_stay() -> None:
    view = live(*ALL, RemoveBinding(BINDING, "key")).view
    assert [each.binding.routing_key for each in view.bindings["mails"]] == ["b"]


def test_a_queue_that_is_made_again_keeps_its_messages() -> None:
    queue = Queue("mails", ())
    seen = Snapshot({}, {"mails": ObservedQueue("mails", {}, True, messages=7)}, {}, {})
    made = LiveSnapshot(seen)
    made.apply(MakeQueue(queue), None)
    assert made.view.queues["mails"].messages == 7


def test_a_user_is_right_once_it_is_made() -> None:
    made = live(MakeUser("u", "p", RIGHTS))
    assert user_action("u", "p", RIGHTS, made.view) is None
    assert user_action("u", "other", RIGHTS, made.view) is not None
    made.apply(RemoveUser("u"), None)
    assert made.view.users == {}


def test_users_that_are_not_ours_to_manage_stay_unknown() -> None:
    made = LiveSnapshot(Snapshot({}, {}, {}, None))
    made.apply(MakeUser("u", "p", RIGHTS), None)
    made.apply(RemoveUser("u"), None)
    assert made.view.users is None


def test_what_was_seen_stays_as_it_was() -> None:
    made = LiveSnapshot(EMPTY)
    made.apply(ALL[0], None)
    assert EMPTY.exchanges == {}
    assert made.view.exchanges != {}
