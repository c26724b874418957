"""What is true of a resource after its plan was carried out."""

from dataclasses import dataclass
from typing import Any

from outbox_operator.children.names import Owner, selector_text
from outbox_operator.children.rollout import Rollout
from outbox_operator.conditions import Finding
from outbox_operator.planning.findings import is_made
from outbox_operator.resources.condition import ConditionType


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is true after a plan was carried out."""

    findings: tuple[Finding, ...]
    """Each side of the resource."""
    rollout: Rollout | None
    """The pods; None where there are none, or nothing was done about them."""
    has_no_pods: bool = False
    """Whether there are none for certain."""
    failed: bool = False
    """Whether some of it has to be tried again."""
    look_again_seconds: float | None = None
    """When to look again, where nobody may tell of what is awaited: that pods begin to fail, or are gone."""

    @property
    def has_topology(self) -> bool:
        """Whether what it needs on the broker is there."""
        found = (finding for finding in self.findings if finding.type is ConditionType.TOPOLOGY_READY)
        return any(map(is_made, found))

    def pod_fields(self, owner: Owner) -> dict[str, Any]:
        """What the status says of the pods; nothing where nothing was seen of them."""
        if self.has_no_pods:
            return {"replicas": None, "ready_replicas": None, "selector": None}
        if self.rollout is None:
            return {}
        return {
            "replicas": self.rollout.replicas,
            "ready_replicas": self.rollout.ready_replicas,
            "selector": selector_text(owner),
        }
