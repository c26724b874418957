"""What the operator reports of a resource, where we could not look ourselves."""

from datetime import UTC, datetime
from typing import Any

import pytest

from outbox_cli.status.picture import QueueState, TableState
from outbox_cli.status.reported import queue_state, relay_state
from outbox_core.horizon_holder import Holder, HolderKind
from outbox_operator.resources import OutboxListener, OutboxRelay

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
WORKER = {"image": "shop:1", "replicas": 3}


def condition(kind: str, status: str, reason: str, message: str = "") -> dict[str, str]:
    moment = "2026-01-01T00:00:00Z"
    return {
        "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": moment
    }  # fmt: skip


def relay(status: dict[str, Any]) -> OutboxRelay:
    secrets = {name: {"secretRef": {"name": name}} for name in ("database", "broker")}
    metadata = {"name": "main", "namespace": "shop", "generation": 2}
    return OutboxRelay.model_validate(
        {"metadata": metadata, "spec": {**secrets, "replicas": 2}, "status": status}
    )


def listener(spec: dict[str, Any], status: dict[str, Any]) -> OutboxListener:
    metadata = {"name": "mail", "namespace": "shop", "generation": 1}
    needed = {"relayRef": {"name": "main"}, "bindingKeys": ["#"]}
    return OutboxListener.model_validate({"metadata": metadata, "spec": {**needed, **spec}, "status": status})


def test_the_numbers_of_the_operator_stand_in_for_a_look() -> None:
    status = {"backlog": 7, "parked": 1, "oldestPendingAt": "2026-01-01T11:50:00Z", "readyReplicas": 1}
    found = relay_state(relay(status), None, NOW)
    assert found.table == TableState('"outbox_table"', 7, None, 600.0, 1)
    assert found.resource is not None
    assert found.resource.pods == "1/2"


def test_a_look_of_our_own_wins() -> None:
    seen = TableState('"outbox_table"', 1, 2, 3.0, 4)
    assert relay_state(relay({"backlog": 7}), seen, NOW).table == seen
    counted = QueueState("shop.mail", 1, 2, 3)
    found = queue_state(listener({}, {"backlog": 7}), counted)
    assert (found.waiting, found.consumers, found.dead_letters) == (1, 2, 3)


def test_a_holder_that_the_operator_reports_is_said_once() -> None:
    holder = Holder(HolderKind.SESSION, 741, 9, pid=47, seconds=900.0)
    seen = TableState('"outbox_table"', 1, 2, 3.0, 4, 200_000, holder)
    assert relay_state(relay({}), seen, NOW).table == seen
    held = condition("VacuumEffective", "False", "HeldBySession", "end it")
    found = relay_state(relay({"conditions": [held]}), seen, NOW)
    assert found.table is not None
    assert found.table.horizon_holder is None
    assert found.resource is not None
    assert found.resource.problems == ("HeldBySession: end it",)


def test_what_is_false_is_a_problem_but_for_the_sum_and_a_pause() -> None:
    conditions = [
        condition("Paused", "False", "Running"),
        condition("DatabaseReady", "False", "SchemaMissing", "no table; make it"),
        condition("TopologyReady", "Unknown", "NotLooked"),
        condition("Ready", "False", "SchemaMissing", "no table; make it"),
    ]
    found = relay_state(relay({"conditions": conditions}), None, NOW).resource
    assert found is not None
    assert (found.ready, found.reason) == ("False", "SchemaMissing")
    assert found.problems == ("SchemaMissing: no table; make it",)


@pytest.mark.parametrize(
    ("status", "is_seen"),
    [
        ({}, False),
        ({"observedGeneration": 1, "conditions": [condition("Ready", "True", "Ready")]}, False),
        ({"observedGeneration": 2, "conditions": [condition("Ready", "True", "Ready")]}, True),
    ],
)
def test_the_operator_has_seen_what_it_has_written_of(status: dict[str, Any], is_seen: bool) -> None:
    found = relay_state(relay(status), None, NOW).resource
    assert found is not None
    assert found.is_seen is is_seen


@pytest.mark.parametrize(
    ("spec", "pods", "may_rest"),
    [
        ({}, "", False),
        ({"worker": WORKER}, "1/3", False),
        ({"worker": {**WORKER, "replicas": 0}}, "1/0", True),
        ({"worker": {**WORKER, "autoscaling": {"min": 0, "max": 5}}}, "1/2", True),
        ({"worker": {**WORKER, "autoscaling": {"min": 1, "max": 5}}}, "1/2", False),
    ],
)
def test_a_listener_may_rest_where_it_is_scaled_to_nothing(
    spec: dict[str, Any], pods: str, may_rest: bool
) -> None:
    found = queue_state(listener(spec, {"replicas": 2, "readyReplicas": 1}), None)
    assert found.resource is not None
    assert (found.resource.pods, found.may_rest) == (pods, may_rest)


@pytest.mark.parametrize(("made", "is_missing"), [(None, False), ("shop.mail", True)])
def test_a_queue_is_missing_once_the_operator_has_made_it(made: str | None, is_missing: bool) -> None:
    gone = QueueState("shop.mail", None, None, None, is_missing=True)
    assert queue_state(listener({}, {"queue": made}), gone).is_missing is is_missing
