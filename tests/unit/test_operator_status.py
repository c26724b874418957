from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from outbox_operator.conditions import Finding
from outbox_operator.planning.status import next_status, same_moment, status_patch, turns
from outbox_operator.resources import OutboxListener
from outbox_operator.resources.condition import Condition, ConditionStatus, ConditionType
from outbox_operator.resources.listener import ListenerStatus

THEN = datetime(2030, 1, 1, tzinfo=UTC)
NOW = THEN + timedelta(hours=1)
MADE = Finding(ConditionType.TOPOLOGY_READY, ConditionStatus.TRUE, "Present")
WRONG = Finding(ConditionType.TOPOLOGY_READY, ConditionStatus.FALSE, "ArgumentsDiffer", "it is classic")


def listener(generation: int = 1, **status: Any) -> OutboxListener:
    return OutboxListener.model_validate(
        {
            "metadata": {"name": "mail", "namespace": "shop", "generation": generation},
            "spec": {"relayRef": {"name": "shop"}, "bindingKeys": ["a"]},
            "status": status,
        }
    )


def after(owner: OutboxListener, *findings: Finding, now: datetime = NOW, **fields: Any) -> OutboxListener:
    return owner.model_copy(update={"status": next_status(owner, findings, now, **fields)})


def condition(kind: ConditionType, status: str, reason: str = "Because") -> Condition:
    return Condition(
        type=kind,
        status=ConditionStatus(status),
        reason=reason,
        message="",
        observed_generation=1,
        last_transition_time=THEN,
    )


def test_a_status_has_what_was_found_and_for_which_generation() -> None:
    status = after(listener(3), MADE, queue="shop.mail").status
    assert status.observed_generation == 3
    assert status.queue == "shop.mail"
    assert [(each.type, each.status) for each in status.conditions] == [
        ("TopologyReady", "True"),
        ("Ready", "True"),
    ]


def test_a_field_that_is_not_given_stays() -> None:
    status = after(listener(queue="shop.mail", backlog=5), WRONG).status
    assert (status.queue, status.backlog) == ("shop.mail", 5)


def test_a_second_look_that_finds_the_same_changes_nothing() -> None:
    first = after(listener(), MADE, now=THEN, backlog=1)
    second = after(first, MADE, now=NOW, backlog=1)
    assert status_patch(first.status, second.status) == []


def test_only_what_changed_is_written() -> None:
    first = after(listener(), MADE, now=THEN, queue="shop.mail", backlog=1)
    changed = after(first, MADE, backlog=2).status
    assert status_patch(first.status, changed) == [{"op": "add", "path": "/status/backlog", "value": 2}]


def test_a_first_status_is_written_whole() -> None:
    new = ListenerStatus(queue="shop.mail")
    assert status_patch(ListenerStatus(), new) == [{"op": "add", "path": "/status", "value": new.manifest()}]


def test_what_is_known_no_more_is_removed() -> None:
    before, now = ListenerStatus(queue="shop.mail", backlog=3), ListenerStatus(queue="shop.mail")
    assert status_patch(before, now) == [{"op": "remove", "path": "/status/backlog"}]


@pytest.mark.parametrize(
    ("seconds", "is_same"), [(0, True), (1.9, True), (-1.9, True), (2, False), (-2, False), (60, False)]
)
def test_a_moment_that_is_nearly_the_same_is_the_same(seconds: float, is_same: bool) -> None:
    new = THEN + timedelta(seconds=seconds)
    assert same_moment(THEN, new) == (THEN if is_same else new)


def test_a_moment_that_comes_or_goes_is_another() -> None:
    assert same_moment(None, NOW) == NOW
    assert same_moment(THEN, None) is None


TOPOLOGY, READY, PAUSED = ConditionType.TOPOLOGY_READY, ConditionType.READY, ConditionType.PAUSED


@pytest.mark.parametrize(
    ("old", "new", "heard"),
    [
        pytest.param([], [(TOPOLOGY, "False")], [TOPOLOGY], id="something is wrong at first"),
        pytest.param([(TOPOLOGY, "True")], [(TOPOLOGY, "False")], [TOPOLOGY], id="something went wrong"),
        pytest.param([(TOPOLOGY, "False")], [(TOPOLOGY, "False")], [], id="it is still wrong"),
        pytest.param(
            [(TOPOLOGY, "False")], [(TOPOLOGY, "False", "Other")], [TOPOLOGY], id="it is wrong otherwise"
        ),
        pytest.param([(TOPOLOGY, "False")], [(TOPOLOGY, "True")], [], id="one side is well again"),
        pytest.param([(TOPOLOGY, "True")], [(TOPOLOGY, "Unknown")], [], id="nobody knows now"),
        pytest.param([], [(READY, "True")], [READY], id="all is well at first"),
        pytest.param([(READY, "False")], [(READY, "True")], [READY], id="all is well again"),
        pytest.param([(READY, "True")], [(READY, "True", "Other")], [], id="all is still well"),
        pytest.param([(READY, "True")], [(READY, "False")], [], id="another condition says what is wrong"),
        pytest.param([], [(PAUSED, "True")], [PAUSED], id="paused"),
        pytest.param([(PAUSED, "True")], [(PAUSED, "False")], [], id="paused no more"),
    ],
)
def test_people_hear_of_what_went_wrong_and_that_all_is_well(
    old: list[tuple[ConditionType, str]],
    new: list[tuple[ConditionType, str]],
    heard: list[ConditionType],
) -> None:
    found = turns([condition(*each) for each in old], [condition(*each) for each in new])
    assert [each.type for each in found] == heard
