"""The conditions of a status: one for each side of a resource that can be well or not."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, TypeAlias

from pydantic import Field

from outbox_operator.resources.part import Part
from outbox_operator.resources.rules import ListType


class ConditionType(StrEnum):
    """Everything that is said of a resource, in the order in which a person would mend it."""

    PAUSED = "Paused"
    CREDENTIALS_VALID = "CredentialsValid"
    DATABASE_READY = "DatabaseReady"
    RELAY_READY = "RelayReady"
    TOPOLOGY_READY = "TopologyReady"
    WORKLOAD_AVAILABLE = "WorkloadAvailable"
    PREVIOUS_VHOST_DRAINED = "PreviousVhostDrained"
    VACUUM_EFFECTIVE = "VacuumEffective"
    READY = "Ready"


class ConditionStatus(StrEnum):
    """Whether it is so."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(Part):
    """One side of a resource, as the operator last found it."""

    type: Annotated[str, Field(max_length=316)]
    """Which side."""
    status: ConditionStatus
    """True, False, or Unknown where the operator could not look."""
    reason: Annotated[str, Field(min_length=1, max_length=1024)]
    """Why, in one word."""
    message: Annotated[str, Field(max_length=32768)] = ""
    """Why, in a sentence that says what to do about it."""
    observed_generation: Annotated[int, Field(ge=0)] = 0
    """The metadata.generation that this was found for."""
    last_transition_time: datetime
    """When the status last became another one."""


Conditions: TypeAlias = Annotated[tuple[Condition, ...], ListType("map", keys=("type",))]
"""All that is said of a resource, one of each type."""
