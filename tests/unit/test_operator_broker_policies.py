from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from outbox.topology import Subscription, topology
from outbox_operator.broker.actions import MakeBinding
from outbox_operator.broker.live_snapshot import LiveSnapshot
from outbox_operator.broker.policies import PolicyConflict, policy_conflicts, queue_settings
from outbox_operator.broker.snapshot import ObservedPolicy, Snapshot
from outbox_operator.broker.topology_plan import topology_actions

QUEUE, LETTERS, TIER = "shop.mail", "shop.mail.dlq", "outbox.delay_10s"
MAIL = Subscription(QUEUE, ("user.created",), (timedelta(seconds=10),))
WANTED = topology("outbox", [MAIL])
EMPTY = Snapshot({}, {}, {}, None)


def policy(pattern: str, definition: Mapping[str, Any], *, name: str = "p", **fields: Any) -> ObservedPolicy:
    return ObservedPolicy(
        name, pattern, **{"apply_to": "all", "priority": 0, **fields}, definition=definition
    )


def exactly(name: str) -> str:
    return f"^{name.replace('.', '[.]')}$"


def conflicts(*policies: ObservedPolicy, snapshot: Snapshot = EMPTY) -> list[PolicyConflict]:
    users = tuple(each for each in policies if not each.is_operators)
    operators = tuple(each for each in policies if each.is_operators)
    return list(policy_conflicts(WANTED, replace(snapshot, policies=users, operator_policies=operators)))


@pytest.mark.parametrize(
    ("name", "definition", "key", "harm"),
    [
        (
            QUEUE,
            {"expires": 60_000},
            "expires",
            "deletes it with its messages when it was not used for 60000 ms",
        ),
        (LETTERS, {"expires": 60_000}, "expires", "deletes it with its messages"),
        (TIER, {"expires": 60_000}, "expires", "deletes it with its messages"),
        (QUEUE, {"message-ttl": 0}, "message-ttl", "dead-letters messages that no worker has taken for 0 ms"),
        (LETTERS, {"message-ttl": 5}, "message-ttl", "removes dead letters after 5 ms"),
        (TIER, {"message-ttl": 9_999}, "message-ttl", "ends the delay of retries, which is 10000 ms"),
        (QUEUE, {"overflow": "drop-head"}, "overflow", "drops messages when it is full"),
        (TIER, {"max-length": 5, "overflow": "drop-head"}, "overflow", "drops messages when it is full"),
        (LETTERS, {"max-length": 5}, "max-length", "drops its oldest dead letters beyond 5 messages"),
        (
            LETTERS,
            {"max-length-bytes": 9},
            "max-length-bytes",
            "drops its oldest dead letters beyond 9 bytes",
        ),
        (QUEUE, {"delivery-limit": 3}, "delivery-limit", "fewer deliveries than the 20 that are wanted"),
        (LETTERS, {"delivery-limit": 3}, "delivery-limit", "drops dead letters that were looked at 3 times"),
        (
            TIER,
            {"dead-letter-routing-key": "x"},
            "dead-letter-routing-key",
            "sends its retries to another queue",
        ),
        ("outbox", {"alternate-exchange": "x"}, "alternate-exchange", "that no queue is bound for"),
        ("outbox.dlx", {"alternate-exchange": "x"}, "alternate-exchange", "that no queue is bound for"),
    ],
)
def test_a_setting_that_harms_an_object_is_found(
    name: str, definition: dict[str, Any], key: str, harm: str
) -> None:
    [found] = conflicts(policy(exactly(name), definition))
    assert (found.name, found.key) == (name, key)
    assert harm in found.difference
    assert f'has {key}={definition[key]} by policy "p"' in found.difference


@pytest.mark.parametrize(
    ("name", "definition"),
    [
        # The queue refuses what is beyond, and the relay keeps it in the table.
        (QUEUE, {"max-length": 5}),
        (TIER, {"max-length-bytes": 5}),
        (QUEUE, {"overflow": "reject-publish"}),
        (LETTERS, {"max-length": 5, "overflow": "reject-publish"}),
        # The arguments win over these.
        (QUEUE, {"dead-letter-exchange": "x", "dead-letter-routing-key": "x"}),
        (TIER, {"dead-letter-exchange": "x"}),
        (QUEUE, {"dead-letter-strategy": "at-most-once"}),
        # The lower of both is in effect.
        (TIER, {"message-ttl": 10_000}),
        (QUEUE, {"delivery-limit": 20}),
        (QUEUE, {"delivery-limit": -1}),
        (LETTERS, {"overflow": "drop-head"}),
        (QUEUE, {"queue-leader-locator": "balanced", "target-group-size": 3}),
        ("elsewhere", {"expires": 1}),
    ],
)
def test_a_setting_that_harms_nothing_is_none(name: str, definition: dict[str, Any]) -> None:
    assert conflicts(policy(exactly(name), definition)) == []


@pytest.mark.parametrize(
    ("apply_to", "names"),
    [
        ("all", {QUEUE, LETTERS, TIER}),
        ("queues", {QUEUE, LETTERS, TIER}),
        ("quorum_queues", {QUEUE, LETTERS, TIER}),
        ("classic_queues", set()),
        ("streams", set()),
        ("exchanges", set()),
    ],
)
def test_a_policy_is_for_the_kinds_that_it_names(apply_to: str, names: set[str]) -> None:
    found = conflicts(policy(".*", {"expires": 1}, apply_to=apply_to))
    assert {each.name for each in found} == names


def test_of_several_policies_the_one_of_the_highest_priority_applies() -> None:
    harmful = policy("mail$", {"expires": 1}, name="harmful", priority=1)
    harmless = policy("mail", {"queue-leader-locator": "balanced"}, name="harmless", priority=2)
    assert conflicts(harmful, harmless) == []
    assert conflicts(replace(harmful, priority=3), harmless) != []


def test_what_the_broker_lists_goes_before_the_pattern() -> None:
    """Of a queue that exists the broker tells which policy it has."""
    made = LiveSnapshot(EMPTY)
    for action in topology_actions(WANTED, "shop/mail", EMPTY).actions:
        made.apply(action, "key")
    harmful = policy(".*", {"expires": 1})
    assert conflicts(harmful, snapshot=made.view) == []
    queues = {**made.view.queues, QUEUE: replace(made.view.queues[QUEUE], policy="p")}
    [found] = conflicts(harmful, snapshot=replace(made.view, queues=queues))
    assert found.name == QUEUE


def test_a_queue_that_is_made_gets_the_policy_that_matches() -> None:
    live = LiveSnapshot(replace(EMPTY, policies=(policy("[.]dlq$", {"message-ttl": 5}),)))
    for action in topology_actions(WANTED, "shop/mail", live.view).actions:
        live.apply(action, "key")
    assert live.view.queues[LETTERS].policy == "p"
    assert live.view.queues[QUEUE].policy is None


@pytest.mark.parametrize(
    ("users", "operators", "value", "title"),
    [
        ({"message-ttl": 5}, {}, 5, "policy"),
        ({}, {"message-ttl": 5}, 5, "operator policy"),
        ({"message-ttl": 5}, {"message-ttl": 9}, 5, "policy"),
        ({"message-ttl": 9}, {"message-ttl": 5}, 5, "operator policy"),
    ],
)
def test_an_operator_policy_limits_a_users(
    users: dict[str, Any], operators: dict[str, Any], value: int, title: str
) -> None:
    snapshot = replace(
        EMPTY,
        policies=(policy(".*", users),),
        operator_policies=(policy(".*", operators, is_operators=True),),
    )
    found = queue_settings(LETTERS, snapshot)["message-ttl"]
    assert (found.value, found.policy.title) == (value, title)


def test_an_operator_policy_wins_where_it_is_not_about_a_number() -> None:
    snapshot = replace(
        EMPTY,
        policies=(policy(".*", {"overflow": "drop-head"}),),
        operator_policies=(policy(".*", {"overflow": "reject-publish"}, is_operators=True),),
    )
    assert queue_settings(QUEUE, snapshot)["overflow"].value == "reject-publish"


@pytest.mark.parametrize("pattern", ["^[[:alnum:].]+$", "(?|a|b)", "("])
def test_a_pattern_that_only_erlang_understands_may_match(pattern: str) -> None:
    assert conflicts(policy(pattern, {"expires": 1}, is_operators=True)) != []


def test_a_policy_for_mirrored_queues_is_not_for_quorum_queues() -> None:
    assert conflicts(policy(".*", {"ha-mode": "all", "message-ttl": 1}, is_operators=True)) == []


@pytest.mark.parametrize(
    ("name", "definition", "unbound"),
    [
        (LETTERS, {"message-ttl": 5}, {LETTERS}),
        (QUEUE, {"expires": 5}, {QUEUE}),
        # Without its binding a message would go to the alternate exchange, and count as sent.
        ("outbox", {"alternate-exchange": "x"}, set()),
    ],
)
def test_a_new_queue_that_loses_messages_is_not_bound(
    name: str, definition: dict[str, Any], unbound: set[str]
) -> None:
    snapshot = replace(EMPTY, policies=(policy(exactly(name), definition),))
    plan = topology_actions(WANTED, "shop/mail", snapshot)
    bound = {action.binding.queue for action in plan.actions if isinstance(action, MakeBinding)}
    assert {QUEUE, LETTERS, TIER} - bound == unbound
