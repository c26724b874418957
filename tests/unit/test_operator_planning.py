"""Golden plans: what was seen, in `in.yaml`, and all that follows from it, in `out.yaml`.

With WRITE_GOLDEN=1 the latter are written anew, for a person to read the difference.
"""

import os
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from outbox.topology import Binding
from outbox_operator.broker.access import BrokerAccess
from outbox_operator.broker.actions import Action, MakeUser, Permissions
from outbox_operator.broker.snapshot import (
    BrokerProblem,
    ObservedBinding,
    ObservedExchange,
    ObservedQueue,
    ObservedUser,
    Snapshot,
)
from outbox_operator.children.family import Facilities, children
from outbox_operator.children.workload import Workload
from outbox_operator.conditions import Finding, merge
from outbox_operator.database_access import DatabaseAccess
from outbox_operator.database_view import DatabaseView
from outbox_operator.planning import listener_plan, relay_plan
from outbox_operator.planning.claims import Obstacle
from outbox_operator.planning.plan import Plan
from outbox_operator.planning.pod_credentials import Chance, PodCredentials
from outbox_operator.resources import OutboxListener, OutboxRelay
from outbox_operator.resources.condition import ConditionStatus, ConditionType

GOLDEN = Path(__file__).parent.parent / "operator" / "golden"
CASES = sorted(folder.name for folder in GOLDEN.iterdir() if folder.is_dir())
CHANCE = Chance("0a1b2c3d", "drawn-by-lot")
ACCESS = BrokerAccess("rabbit", 5672, False, "shop", "admin", "p", "http://rabbit:15672")


@pytest.mark.parametrize("name", CASES)
def test_the_plan_is_the_golden_one(name: str) -> None:
    folder = GOLDEN / name
    seen = yaml.safe_load((folder / "in.yaml").read_text())
    found = written(plan_of(seen), Facilities(**seen.get("facilities", {})))
    golden = folder / "out.yaml"
    if os.environ.get("WRITE_GOLDEN"):
        golden.write_text(yaml.safe_dump(found, sort_keys=False, width=100))
    assert yaml.safe_load(golden.read_text()) == found


def test_there_are_golden_plans() -> None:
    assert len(CASES) >= 15


def plan_of(seen: Mapping[str, Any]) -> Plan:
    """The plan for what an `in.yaml` says."""
    resource = seen["resource"]
    credentials = PodCredentials(**seen["credentials"]) if "credentials" in seen else None
    if resource["kind"] == "OutboxRelay":
        return relay_plan.plan(
            relay_plan.RelayView(
                relay=OutboxRelay.model_validate(resource),
                access=finding(seen["access"]) if "access" in seen else ACCESS,
                entered=seen.get("entered", DatabaseAccess("postgresql://shop:p@postgres/shop")),
                broker=broker(seen["broker"]),
                database=database(seen),
                idle_tiers=tuple(seen.get("idle_tiers", ())),
                credentials=credentials,
                image="outbox-relay:1",
                chance=CHANCE,
            )
        )
    return listener_plan.plan(
        listener_plan.ListenerView(
            listener=OutboxListener.model_validate(resource),
            relay=OutboxRelay.model_validate(seen["relay"]) if seen.get("relay") else None,
            access=ACCESS,
            broker=broker(seen["broker"]),
            obstacle=obstacle(seen.get("obstacle")),
            credentials=credentials,
            chance=CHANCE,
            has_keda=seen.get("facilities", {}).get("keda", False),
        )
    )


def finding(seen: Mapping[str, str]) -> Finding:
    kind, status = ConditionType(seen["type"]), ConditionStatus(seen["status"])
    return Finding(kind, status, seen["reason"], seen.get("message", ""))


def database(seen: Mapping[str, Any]) -> DatabaseView | None:
    if "database" not in seen:
        return None
    vacuum = finding(seen["vacuum"]) if "vacuum" in seen else None
    return DatabaseView(tuple(map(finding, seen["database"])), vacuum=vacuum)


def obstacle(seen: Mapping[str, Any] | None) -> Obstacle | None:
    if seen is None:
        return None
    return Obstacle(seen["queue"], OutboxListener.model_validate(seen["owner"]).metadata.path)


def broker(seen: Mapping[str, Any]) -> Snapshot | BrokerProblem:
    if "problem" in seen:
        return BrokerProblem(**seen["problem"])
    bindings: dict[str, tuple[ObservedBinding, ...]] = {}
    for exchange, queue, key, owner in seen.get("bindings", ()):
        bound = ObservedBinding(Binding(exchange, queue, key), f"{key}~", owner)
        bindings[queue] = (*bindings.get(queue, ()), bound)
    return Snapshot(
        {name: ObservedExchange(name, kind, True) for name, kind in seen.get("exchanges", {}).items()},
        {
            name: ObservedQueue(name, queue["arguments"], True, queue.get("messages", 0))
            for name, queue in seen.get("queues", {}).items()
        },
        bindings,
        _users(seen["users"]) if "users" in seen else None,
    )


def _users(seen: Mapping[str, Mapping[str, str]]) -> dict[str, ObservedUser]:
    return {
        name: ObservedUser(
            name, user["hash"], user["hashing"], Permissions(user["configure"], user["write"], user["read"])
        )
        for name, user in seen.items()
    }


def written(plan: Plan, facilities: Facilities) -> dict[str, Any]:
    """A plan as an `out.yaml` says it; with its children, and with no password but what was drawn."""
    made: dict[str, Any] = {
        "findings": [
            {key: str(value) for key, value in asdict(each).items() if value} for each in plan.findings
        ],
        "ready": _ready(plan),
        "actions": [_action(action) for action in plan.actions],
    }
    if plan.credentials is not None:
        made["credentials"] = {**asdict(plan.credentials), "data": dict(plan.credentials.data)}
    if plan.idle_tiers:
        made["idle_tiers"] = list(plan.idle_tiers)
    if plan.retired_users:
        made["retired_users"] = list(plan.retired_users)
    if isinstance(plan.pods, Workload):
        family = children(plan.pods, facilities)
        made["children"] = list(family.wanted)
        made["no_children"] = [list(child) for child in family.unwanted]
    else:
        made["pods"] = plan.pods
    plain: dict[str, Any] = yaml.safe_load(yaml.safe_dump(made))
    return plain


def _ready(plan: Plan) -> str:
    conditions = merge((), plan.findings, generation=1, now=datetime(2026, 1, 1, tzinfo=UTC))
    [ready] = [condition for condition in conditions if condition.type == ConditionType.READY]
    return f"{ready.status} {ready.reason}"


def _action(action: Action) -> dict[str, Any]:
    """An action by its name, with what it is about."""
    fields = {
        name: asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
        for name, value in ((name, getattr(action, name)) for name in action.__dataclass_fields__)
    }
    if isinstance(action, MakeUser):
        fields["password"] = action.password
    return {type(action).__name__: _plain(fields)}


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {name: _plain(item) for name, item in value.items()}
        case tuple() | list():
            return [_plain(item) for item in value]
        case _:
            return value
