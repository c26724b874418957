from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from outbox.topology import Binding, Exchange, Queue, Subscription, topology
from outbox_operator.broker.actions import (
    Action,
    MakeBinding,
    MakeExchange,
    MakeQueue,
    RemoveBinding,
    RemoveExchange,
    RemoveQueue,
)
from outbox_operator.broker.live_snapshot import LiveSnapshot
from outbox_operator.broker.snapshot import (
    ObservedBinding,
    ObservedExchange,
    ObservedQueue,
    Snapshot,
)
from outbox_operator.broker.topology_plan import TopologyPlan, topology_actions

MAIL = Subscription("shop.mail", ("user.created", "user.moved"), (timedelta(seconds=1),))
OWNER = "shop/mail"
WANTED = topology("outbox", [MAIL])
EMPTY = Snapshot({}, {}, {}, None)


def there(*actions: Action, before: Snapshot = EMPTY) -> Snapshot:
    """A virtual host in which this was done."""
    live = LiveSnapshot(before)
    for number, action in enumerate(actions):
        live.apply(action, f"key-{number}")
    return live.view


def all_there(owner: str = OWNER) -> Snapshot:
    return there(*topology_actions(WANTED, owner, EMPTY).actions)


def with_queue(name: str, *, durable: bool = True, arguments: Mapping[str, Any]) -> Snapshot:
    """A virtual host in which all is right but for one queue."""
    before = all_there()
    queue = ObservedQueue(name, arguments, durable, messages=0)
    return replace(before, queues={**before.queues, name: queue})


def with_bindings(queue: str, *bindings: ObservedBinding) -> Snapshot:
    before = all_there()
    return replace(before, bindings={**before.bindings, queue: bindings})


def plan(snapshot: Snapshot, owner: str = OWNER) -> TopologyPlan:
    return topology_actions(WANTED, owner, snapshot)


def arguments(queue: str) -> dict[str, Any]:
    return next(each.arguments for each in WANTED.queues if each.name == queue)


@pytest.mark.parametrize(
    ("exchange", "words"),
    [
        ({"is_internal": True}, "is internal"),
        ({"is_auto_deleted": True}, "is deleted with its last binding"),
        ({"arguments": {"alternate-exchange": "x"}}, "has alternate-exchange=x where none is wanted"),
    ],
)
def test_an_exchange_that_would_lose_messages_is_a_conflict(exchange: dict[str, Any], words: str) -> None:
    there = {"outbox": ObservedExchange("outbox", "topic", durable=True, **exchange)}
    found = topology_actions(topology("outbox", []), "outbox", Snapshot(there, {}, {}, None))
    assert [words in conflict.message for conflict in found.conflicts] == [True]


def test_on_an_empty_vhost_all_is_made_exchanges_first_and_bindings_last() -> None:
    assert plan(EMPTY) == TopologyPlan(
        actions=(
            MakeExchange(Exchange("outbox", "topic")),
            MakeExchange(Exchange("outbox.dlx", "direct")),
            MakeExchange(Exchange("outbox.delay_1s", "fanout")),
            *(MakeQueue(queue) for queue in WANTED.queues),
            MakeBinding(Binding("outbox.dlx", "shop.mail.dlq", "shop.mail"), OWNER),
            MakeBinding(Binding("outbox.delay_1s", "outbox.delay_1s", ""), "outbox"),
            MakeBinding(Binding("outbox", "shop.mail", "user.created"), OWNER),
            MakeBinding(Binding("outbox", "shop.mail", "user.moved"), OWNER),
        ),
        conflicts=(),
    )


def test_where_all_is_there_nothing_is_done() -> None:
    assert plan(all_there()) == TopologyPlan((), ())


def test_an_exchange_without_listeners_has_no_queues() -> None:
    alone = topology("outbox", [])
    actions = topology_actions(alone, "shop/relay", EMPTY).actions
    assert actions == (
        MakeExchange(Exchange("outbox", "topic")),
        MakeExchange(Exchange("outbox.dlx", "direct")),
    )


@pytest.mark.parametrize("queue", [queue.name for queue in WANTED.queues])
def test_a_queue_removed_by_hand_is_made_again_with_its_bindings(queue: str) -> None:
    actions = plan(there(RemoveQueue(queue, if_empty=False), before=all_there())).actions
    made = [action.queue.name for action in actions if isinstance(action, MakeQueue)]
    bound = [action.binding for action in actions if isinstance(action, MakeBinding)]
    assert made == [queue]
    assert bound == [binding for binding in WANTED.bindings if binding.queue == queue]
    assert len(actions) == len(made) + len(bound)


@pytest.mark.parametrize("exchange", [exchange.name for exchange in WANTED.exchanges])
def test_an_exchange_removed_by_hand_is_made_again_with_its_bindings(exchange: str) -> None:
    actions = plan(there(RemoveExchange(exchange), before=all_there())).actions
    made = [action.exchange.name for action in actions if isinstance(action, MakeExchange)]
    bound = [action.binding for action in actions if isinstance(action, MakeBinding)]
    assert made == [exchange]
    assert bound == [binding for binding in WANTED.bindings if binding.exchange == exchange]
    assert len(actions) == len(made) + len(bound)


def test_bindings_of_a_queue_that_is_not_listed_are_not_trusted() -> None:
    before = all_there()
    queues = {name: queue for name, queue in before.queues.items() if name != "shop.mail"}
    actions = plan(replace(before, queues=queues)).actions
    assert [type(action) for action in actions] == [MakeQueue, MakeBinding, MakeBinding]


QUEUE_CURE = "it cannot be changed: move its messages away and delete it, or set spec.queue of a new listener"
TIER_CURE = "it cannot be changed: delete it when it is empty, and it is made again"

QUEUE_CONFLICTS = [
    (
        "shop.mail",
        {**arguments("shop.mail"), "x-delivery-limit": 5},
        [f'queue "shop.mail" has x-delivery-limit=5 where 20 is wanted; {QUEUE_CURE}'],
    ),
    (
        "shop.mail",
        {**arguments("shop.mail"), "x-max-length": 10},
        [f'queue "shop.mail" has x-max-length=10 where none is wanted; {QUEUE_CURE}'],
    ),
    (
        "shop.mail",
        {key: value for key, value in arguments("shop.mail").items() if key != "x-overflow"},
        [f'queue "shop.mail" has no x-overflow where reject-publish is wanted; {QUEUE_CURE}'],
    ),
    (
        "shop.mail",
        {**arguments("shop.mail"), "x-single-active-consumer": True},
        [f'queue "shop.mail" has x-single-active-consumer=true where none is wanted; {QUEUE_CURE}'],
    ),
    (
        "shop.mail.dlq",
        {},
        [
            f'queue "shop.mail.dlq" is of type classic where quorum is wanted; {QUEUE_CURE}',
            f'queue "shop.mail.dlq" has no x-delivery-limit where 1000000 is wanted; {QUEUE_CURE}',
        ],
    ),
    (
        "shop.mail.dlq",
        {**arguments("shop.mail.dlq"), "x-queue-type": "stream"},
        [f'queue "shop.mail.dlq" is of type stream where quorum is wanted; {QUEUE_CURE}'],
    ),
    (
        "outbox.delay_1s",
        {**arguments("outbox.delay_1s"), "x-message-ttl": 2000},
        [f'queue "outbox.delay_1s" has x-message-ttl=2000 where 1000 is wanted; {TIER_CURE}'],
    ),
]


@pytest.mark.parametrize(("queue", "found", "messages"), QUEUE_CONFLICTS)
def test_a_queue_with_other_arguments_is_left_and_told_with_its_cure(
    queue: str, found: dict[str, Any], messages: list[str]
) -> None:
    planned = plan(with_queue(queue, arguments=found))
    assert [conflict.message for conflict in planned.conflicts] == messages
    assert planned.actions == ()


def test_a_queue_that_is_not_durable_is_a_conflict() -> None:
    planned = plan(with_queue("shop.mail", durable=False, arguments=arguments("shop.mail")))
    [conflict] = planned.conflicts
    assert conflict.message == f'queue "shop.mail" is not durable and must be; {QUEUE_CURE}'


@pytest.mark.parametrize(("value", "is_same"), [(20, True), (20.0, True), ("20", False), (True, False)])
def test_a_number_is_compared_as_a_number(value: object, is_same: bool) -> None:
    found = {**arguments("shop.mail"), "x-delivery-limit": value}
    assert bool(plan(with_queue("shop.mail", arguments=found)).conflicts) != is_same


def test_true_is_not_one() -> None:
    ordered = topology("outbox", [replace(MAIL, ordered=True)])
    wanted = next(queue for queue in ordered.queues if queue.name == "shop.mail")
    for value, conflicts in ((True, 0), (1, 1)):
        found = {**wanted.arguments, "x-single-active-consumer": value}
        planned = topology_actions(ordered, OWNER, with_queue("shop.mail", arguments=found))
        assert len(planned.conflicts) == conflicts


@pytest.mark.parametrize(
    ("name", "found", "message"),
    [
        (
            "outbox",
            ObservedExchange("outbox", "direct", durable=True),
            'exchange "outbox" is of type direct where topic is wanted; it cannot be changed: delete it and '
            "it is made again with its bindings, or set spec.exchange of a new relay",
        ),
        (
            "outbox.dlx",
            ObservedExchange("outbox.dlx", "direct", durable=False),
            'exchange "outbox.dlx" is not durable and must be; it cannot be changed: delete it and it '
            "is made again with its bindings, or set spec.exchange of a new relay",
        ),
        (
            "outbox.delay_1s",
            ObservedExchange("outbox.delay_1s", "topic", durable=True),
            f'exchange "outbox.delay_1s" is of type topic where fanout is wanted; {TIER_CURE}',
        ),
    ],
)
def test_an_exchange_that_is_another_is_left_and_told(
    name: str, found: ObservedExchange, message: str
) -> None:
    before = all_there()
    planned = plan(replace(before, exchanges={**before.exchanges, name: found}))
    assert [conflict.message for conflict in planned.conflicts] == [message]
    assert planned.actions == ()


def test_what_is_in_conflict_is_not_bound_and_the_rest_is_made() -> None:
    wrong = ObservedQueue("shop.mail", {}, durable=True, messages=3)
    planned = plan(Snapshot({}, {"shop.mail": wrong}, {}, None))
    assert {conflict.name for conflict in planned.conflicts} == {"shop.mail"}
    assert not any(isinstance(a, MakeQueue) and a.queue.name == "shop.mail" for a in planned.actions)
    bound = [action.binding.queue for action in planned.actions if isinstance(action, MakeBinding)]
    assert bound == ["shop.mail.dlq", "outbox.delay_1s"]


def test_nothing_is_bound_to_an_exchange_in_conflict() -> None:
    wrong = ObservedExchange("outbox", "fanout", durable=True)
    planned = plan(Snapshot({"outbox": wrong}, {}, {}, None))
    exchanges = {action.binding.exchange for action in planned.actions if isinstance(action, MakeBinding)}
    assert exchanges == {"outbox.dlx", "outbox.delay_1s"}


def mine(key: str, owner: str | None = OWNER, exchange: str = "outbox") -> ObservedBinding:
    return ObservedBinding(Binding(exchange, "shop.mail", key), f"props of {key}", owner)


def test_a_binding_that_is_not_wanted_any_more_goes_after_the_new_one_is_made() -> None:
    planned = plan(with_bindings("shop.mail", mine("user.created"), mine("user.#")))
    assert planned.actions == (
        MakeBinding(Binding("outbox", "shop.mail", "user.moved"), OWNER),
        RemoveBinding(Binding("outbox", "shop.mail", "user.#"), "props of user.#"),
    )


@pytest.mark.parametrize(
    "foreign",
    [mine("other", owner=None), mine("other", owner="shop/else"), mine("other", exchange="theirs")],
    ids=["without a mark", "of another listener", "from another exchange"],
)
def test_bindings_of_others_are_left(foreign: ObservedBinding) -> None:
    assert plan(with_bindings("shop.mail", mine("user.created"), mine("user.moved"), foreign)).actions == ()


def test_a_binding_of_the_same_key_by_somebody_else_does_not_count_as_ours() -> None:
    planned = plan(with_bindings("shop.mail", mine("user.created"), mine("user.moved", owner=None)))
    assert planned.actions == (MakeBinding(Binding("outbox", "shop.mail", "user.moved"), OWNER),)


def test_bindings_of_a_queue_in_conflict_are_left() -> None:
    before = with_bindings("shop.mail", mine("user.#"))
    wrong = ObservedQueue("shop.mail", {}, durable=True, messages=0)
    assert plan(replace(before, queues={**before.queues, "shop.mail": wrong})).actions == ()


def with_owner(queue: str, owner: str | None, installation: str = "") -> Snapshot:
    """All there, but one queue was bound by somebody else."""
    before = all_there()
    bound = tuple(replace(each, owner=owner, installation=installation) for each in before.bindings[queue])
    return replace(before, bindings={**before.bindings, queue: bound})


@pytest.mark.parametrize("owner", [None, "outbox"])
def test_a_tier_that_anybody_has_bound_will_do(owner: str | None) -> None:
    assert plan(with_owner("outbox.delay_1s", owner)).actions == ()


@pytest.mark.parametrize("owner", [None, "shop/else"])
def test_a_dead_letter_queue_gets_the_mark_of_its_listener(owner: str | None) -> None:
    binding = Binding("outbox.dlx", "shop.mail.dlq", "shop.mail")
    assert plan(with_owner("shop.mail.dlq", owner)).actions == (MakeBinding(binding, OWNER),)


def test_a_tier_gets_the_mark_of_each_installation_that_uses_it() -> None:
    binding = Binding("outbox.delay_1s", "outbox.delay_1s", "")
    for installation in ("", "there"):
        shared = with_owner("outbox.delay_1s", "outbox", installation)
        assert topology_actions(WANTED, OWNER, shared, "here").actions == (
            MakeBinding(binding, "outbox", "here"),
        )


def test_bindings_of_another_installation_are_left_and_its_own_made_beside() -> None:
    key = Binding("outbox", "shop.mail", "user.gone")
    old = [ObservedBinding(key, f"{each}~", OWNER, each) for each in ("", "here", "there")]
    before = all_there()
    bound = (*before.bindings["shop.mail"], *old)
    found = topology_actions(
        WANTED, OWNER, replace(before, bindings={**before.bindings, "shop.mail": bound}), "here"
    )
    removed = [each for each in found.actions if isinstance(each, RemoveBinding)]
    assert [each.properties_key for each in removed] == ["~", "here~"]


@pytest.mark.parametrize(("key", "is_told"), [("a~b", True), ("~a", True), ("a~", False), ("a", False)])
def test_a_key_with_which_the_broker_could_list_no_binding_is_not_bound(key: str, is_told: bool) -> None:
    wanted = topology("outbox", [replace(MAIL, binding_keys=("user.created", key))])
    planned = topology_actions(wanted, OWNER, EMPTY)
    bound = [action.binding.routing_key for action in planned.actions if isinstance(action, MakeBinding)]
    assert "user.created" in bound
    assert (key in bound) != is_told
    message = (
        f'binding "{key}" would keep RabbitMQ from listing the bindings of its vhost; '
        'choose a key without "~" in spec.bindingKeys'
    )
    assert [conflict.message for conflict in planned.conflicts] == [message] * is_told


def test_a_queue_with_the_name_of_its_exchange_is_bound_as_its_listeners() -> None:
    wanted = topology("outbox", [replace(MAIL, queue="outbox", delays=())])
    actions = topology_actions(wanted, OWNER, EMPTY).actions
    owners = {action.owner for action in actions if isinstance(action, MakeBinding)}
    assert owners == {OWNER}


def test_two_listeners_share_their_tiers() -> None:
    first = topology_actions(WANTED, OWNER, EMPTY).actions
    other = topology("outbox", [replace(MAIL, queue="shop.sms")])
    actions = topology_actions(other, "shop/sms", there(*first)).actions
    queues = [action.queue.name for action in actions if isinstance(action, MakeQueue)]
    assert queues == ["shop.sms.dlq", "shop.sms"]
    assert not any(isinstance(action, MakeExchange) for action in actions)


def test_a_plan_says_what_its_queues_are_made_with() -> None:
    made = [action.queue for action in plan(EMPTY).actions if isinstance(action, MakeQueue)]
    assert made == [Queue(queue.name, queue.settings) for queue in WANTED.queues]
