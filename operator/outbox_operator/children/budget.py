"""How many pods may be away when nodes are drained."""

from outbox_operator.children.autoscaling import autoscaling_of
from outbox_operator.children.manifest import Manifest
from outbox_operator.children.names import child_metadata, labels_of
from outbox_operator.children.workload import Workload


def wants_budget(workload: Workload) -> bool:
    """Whether there may be several pods: a budget for one would be none, or block every drain."""
    if workload.replicas is not None:
        return workload.replicas > 1
    autoscaling = autoscaling_of(workload.owner)
    return autoscaling is not None and autoscaling.max > 1


def disruption_budget(workload: Workload) -> Manifest:
    """One pod at a time; one that is not ready does no work, and may always go."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": child_metadata(workload.owner),
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": labels_of(workload.owner)},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }
