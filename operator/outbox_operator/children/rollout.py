"""How far a Deployment has got, as a finding."""

from dataclasses import dataclass
from typing import Any

from outbox_core.masking import mask
from outbox_operator.children.manifest import Manifest
from outbox_operator.conditions import Finding
from outbox_operator.resources.condition import ConditionStatus, ConditionType

_FALSE, _TRUE = ConditionStatus.FALSE, ConditionStatus.TRUE


@dataclass(frozen=True, slots=True)
class Rollout:
    """A Deployment's state."""

    finding: Finding
    """Whether pods do their work. Where it is not complete a look at the pods may say more."""
    replicas: int
    """How many pods there are."""
    ready_replicas: int
    """How many of them are ready."""
    is_complete: bool
    """Whether nothing more is to come: all pods are of the newest template, and available."""


def rollout(deployment: Manifest | None) -> Rollout:
    """What a live Deployment, or its absence, means."""
    if deployment is None:
        return Rollout(_finding(_FALSE, "Progressing", "the Deployment is about to be made"), 0, 0, False)
    status: dict[str, Any] = deployment.get("status", {})
    is_complete = _is_complete(deployment)
    return Rollout(
        finding=_problem(deployment) or _progress(deployment, is_complete),
        replicas=status.get("replicas", 0),
        ready_replicas=status.get("readyReplicas", 0),
        is_complete=is_complete,
    )


def _problem(deployment: Manifest) -> Finding | None:
    """What keeps pods from being made or from becoming ready, in the words of the Deployment's controller."""
    if not _is_observed(deployment):
        return None
    failure = _condition(deployment, "ReplicaFailure")
    if failure.get("status") == "True":
        cure = "raise the quota or mend what forbids it"
        words = mask(failure.get("message", "no reason was given"))
        return _finding(_FALSE, "ReplicaFailure", f"pods cannot be made: {words}; {cure}")
    progress = _condition(deployment, "Progressing")
    if progress.get("status") == "False" and progress.get("reason") == "ProgressDeadlineExceeded":
        metadata = deployment["metadata"]
        look = f"kubectl describe deployment {metadata['name']} --namespace {metadata['namespace']}"
        return _finding(
            _FALSE,
            "ProgressDeadlineExceeded",
            f"{_count(deployment)}, and no more became so for too long; see its pods and events: {look}",
        )
    return None


def _progress(deployment: Manifest, is_complete: bool) -> Finding:
    status = deployment.get("status", {})
    if _wanted(deployment) == 0:
        return _finding(_TRUE, "ScaledToZero", "no pods are wanted; raise the replicas to start some")
    if is_complete:
        return _finding(_TRUE, "Available", _count(deployment))
    # Work goes on while a pod is there to do it: a rollout or one more replica is no outage.
    is_available = status.get("availableReplicas", 0) > 0
    return _finding(_TRUE if is_available else _FALSE, "Progressing", _count(deployment))


def _is_complete(deployment: Manifest) -> bool:
    status, wanted = deployment.get("status", {}), _wanted(deployment)
    counts = (status.get(count, 0) for count in ("replicas", "updatedReplicas", "availableReplicas"))
    return _is_observed(deployment) and all(count == wanted for count in counts)


def _is_observed(deployment: Manifest) -> bool:
    """Whether the status speaks of the spec as it is."""
    observed: int = deployment.get("status", {}).get("observedGeneration", 0)
    generation: int = deployment["metadata"].get("generation", 0)
    return observed >= generation


def _wanted(deployment: Manifest) -> int:
    replicas: int = deployment["spec"].get("replicas", 1)
    return replicas


def _count(deployment: Manifest) -> str:
    available = deployment.get("status", {}).get("availableReplicas", 0)
    return f"{available} of {_wanted(deployment)} pods are available"


def _condition(deployment: Manifest, kind: str) -> Manifest:
    conditions: list[Manifest] = deployment.get("status", {}).get("conditions", [])
    return next((condition for condition in conditions if condition["type"] == kind), {})


def _finding(status: ConditionStatus, reason: str, message: str) -> Finding:
    return Finding(ConditionType.WORKLOAD_AVAILABLE, status, reason, message)
