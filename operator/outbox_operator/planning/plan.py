"""What has to be done for a resource, whichever of the two it is. Pure."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from outbox_operator.broker.actions import Action
from outbox_operator.children.workload import Workload
from outbox_operator.conditions import Finding
from outbox_operator.planning.pod_credentials import PodCredentials

Pods: TypeAlias = Workload | Literal["None", "AsTheyAre"]
"""The pods that there should be, or that there should be none, or that nothing can be said now."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What has to be done, and what is true of the resource when it is done."""

    findings: tuple[Finding, ...]
    """Everything but what the pods have to say."""
    actions: tuple[Action, ...] = ()
    """On the broker, in this order."""
    credentials: PodCredentials | None = None
    """What the pods enter with; None where there are no pods to be changed."""
    pods: Pods = "AsTheyAre"
    """The pods."""
    idle_tiers: tuple[str, ...] = ()
    """Delay tiers to be removed; that one stays a while longer is nobody's trouble."""
    loses_queue: bool = False
    """Whether another listener has its queue, so that its status must not name it."""
    retired_users: tuple[str, ...] = ()
    """Users of pods of before, to be removed when the last of those pods is gone."""
