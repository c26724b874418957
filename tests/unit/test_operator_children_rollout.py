from typing import Any

import pytest

from outbox_operator.children.rollout import rollout
from outbox_operator.resources.condition import ConditionStatus, ConditionType

_TRUE, _FALSE = ConditionStatus.TRUE, ConditionStatus.FALSE


def _deployment(
    wanted: int = 2,
    *,
    there: int = 2,
    updated: int = 2,
    available: int = 2,
    observed: int = 3,
    conditions: tuple[dict[str, str], ...] = (),
) -> dict[str, Any]:
    status = {
        "observedGeneration": observed,
        "replicas": there,
        "updatedReplicas": updated,
        "readyReplicas": available,
        "availableReplicas": available,
    }
    return {
        "metadata": {"name": "shop-relay", "namespace": "shop", "generation": 3},
        "spec": {"replicas": wanted},
        # As the server does: what is 0 is left out.
        "status": {
            **{field: value for field, value in status.items() if value},
            "conditions": list(conditions),
        },
    }


_QUOTA = {
    "type": "ReplicaFailure",
    "status": "True",
    "reason": "FailedCreate",
    "message": 'pods "shop-relay-x" is forbidden: exceeded quota: small',
}
_STUCK = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "…"}
_MOVING = {"type": "Progressing", "status": "True", "reason": "ReplicaSetUpdated", "message": "…"}

_CASES = [
    ("all there", _deployment(), _TRUE, "Available", "2 of 2 pods are available", True),
    (
        "none wanted",
        _deployment(0, there=0, updated=0, available=0),
        _TRUE,
        "ScaledToZero",
        "raise the replicas",
        True,
    ),
    ("about to stop", _deployment(0), _TRUE, "ScaledToZero", "no pods are wanted", False),
    (
        "starting",
        _deployment(available=0, conditions=(_MOVING,)),
        _FALSE,
        "Progressing",
        "0 of 2 pods are available",
        False,
    ),
    (
        "rolling",
        _deployment(there=3, updated=1, conditions=(_MOVING,)),
        _TRUE,
        "Progressing",
        "2 of 2 pods",
        False,
    ),
    (
        "one more",
        _deployment(3, there=3, updated=3, conditions=(_MOVING,)),
        _TRUE,
        "Progressing",
        "2 of 3 pods",
        False,
    ),
    ("old pods remain", _deployment(there=3), _TRUE, "Progressing", "2 of 2 pods", False),
    ("not yet looked at", _deployment(observed=2), _TRUE, "Progressing", "2 of 2 pods", False),
    ("a quota", _deployment(conditions=(_MOVING, _QUOTA)), _FALSE, "ReplicaFailure", "quota: small", True),
    ("an old quota", _deployment(observed=2, conditions=(_QUOTA,)), _TRUE, "Progressing", "2 of 2", False),
    (
        "stuck",
        _deployment(updated=1, available=1, conditions=(_STUCK,)),
        _FALSE,
        "ProgressDeadlineExceeded",
        "1 of 2 pods are available, and no more became so for too long; see its pods and events: "
        "kubectl describe deployment shop-relay --namespace shop",
        False,
    ),
]


@pytest.mark.parametrize(
    ("deployment", "status", "reason", "message", "is_complete"),
    [case[1:] for case in _CASES],
    ids=[case[0] for case in _CASES],
)
def test_what_a_deployments_state_means(
    deployment: dict[str, Any], status: ConditionStatus, reason: str, message: str, is_complete: bool
) -> None:
    found = rollout(deployment)
    assert found.finding.type is ConditionType.WORKLOAD_AVAILABLE
    assert (found.finding.status, found.finding.reason) == (status, reason)
    assert message in found.finding.message
    assert found.is_complete is is_complete


def test_pods_are_counted() -> None:
    found = rollout(_deployment(there=3, available=1))
    assert (found.replicas, found.ready_replicas) == (3, 1)


def test_a_deployment_that_nobody_made_yet_is_on_its_way() -> None:
    found = rollout(None)
    assert (found.finding.status, found.finding.reason) == (_FALSE, "Progressing")
    assert (found.replicas, found.ready_replicas, found.is_complete) == (0, 0, False)


def test_a_deployment_without_a_status_is_on_its_way() -> None:
    found = rollout({"metadata": {"name": "a", "namespace": "b", "generation": 1}, "spec": {"replicas": 1}})
    assert (found.finding.status, found.finding.reason, found.is_complete) == (_FALSE, "Progressing", False)
