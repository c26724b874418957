"""How the findings of a look at a resource become the conditions of its status, with `Ready` as their sum.

Pure: the time is an argument.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from outbox_core.printable import printable
from outbox_operator.resources.condition import Condition, ConditionStatus, ConditionType

_NO_PART_OF_READY = (ConditionType.PAUSED, ConditionType.VACUUM_EFFECTIVE, ConditionType.READY)
"""Messages flow while vacuum is held back."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a look at the world found about one side of a resource."""

    type: ConditionType
    """The side."""
    status: ConditionStatus
    """Whether it is as it should be."""
    reason: str
    """Why, in one CamelCase word that a program may depend on."""
    message: str = ""
    """Why, for a person, and what to do about it."""


_LONGEST_MESSAGE = 4096


def _shown(message: str) -> str:
    """A message as people may see it: names in it are from brokers, and may be anything."""
    return printable(message[:_LONGEST_MESSAGE])[:_LONGEST_MESSAGE]


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """As a person would mend them."""
    order = list(ConditionType)
    return sorted(findings, key=lambda finding: order.index(finding.type))


def ready(findings: Iterable[Finding]) -> Finding:
    """The sum: the first thing that is wrong, else the first that is not known, else that all is well."""
    ordered = in_order(findings)
    for finding in ordered:
        if finding.type is ConditionType.PAUSED and finding.status is ConditionStatus.TRUE:
            # Nobody looks at the rest meanwhile: whatever is said of it is old.
            return Finding(ConditionType.READY, ConditionStatus.UNKNOWN, finding.reason, finding.message)
    relevant = [f for f in ordered if f.type not in _NO_PART_OF_READY]
    for status in (ConditionStatus.FALSE, ConditionStatus.UNKNOWN):
        for finding in relevant:
            if finding.status is status:
                return Finding(ConditionType.READY, status, finding.reason, finding.message)
    if not relevant:
        message = "the operator has not looked at it yet"
        return Finding(ConditionType.READY, ConditionStatus.UNKNOWN, "Pending", message)
    return Finding(ConditionType.READY, ConditionStatus.TRUE, "Ready", "")


def merge(
    old: Sequence[Condition], findings: Iterable[Finding], *, generation: int, now: datetime
) -> tuple[Condition, ...]:
    """The conditions that follow from `findings`, with `Ready` among them, in a fixed order.

    The time of a condition moves where its status is another one than before. A condition of a type that is
    ours and is not found any more goes (a listener that lost its worker); one that somebody else wrote stays.
    """
    found = [finding for finding in findings if finding.type is not ConditionType.READY]
    before = {condition.type: condition for condition in old}
    ours = [
        _condition(finding, before.get(finding.type), generation, now)
        for finding in in_order([*found, ready(found)])
    ]
    known = {str(kind) for kind in ConditionType}
    return (*ours, *(condition for condition in old if condition.type not in known))


def _condition(finding: Finding, before: Condition | None, generation: int, now: datetime) -> Condition:
    is_same = before is not None and before.status == finding.status
    return Condition(
        type=finding.type,
        status=finding.status,
        reason=finding.reason,
        message=_shown(finding.message),
        observed_generation=generation,
        # Kubernetes keeps whole seconds: a finer one would differ from what is read back.
        last_transition_time=before.last_transition_time
        if before and is_same
        else now.replace(microsecond=0),
    )
