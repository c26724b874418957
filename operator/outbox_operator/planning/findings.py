"""The words for what both kinds of resource may find. Pure."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from outbox_operator.broker.conflicts import Conflict
from outbox_operator.broker.snapshot import BrokerProblem, Snapshot
from outbox_operator.conditions import Finding
from outbox_operator.resources.condition import ConditionStatus, ConditionType

_MOST_NAMED = 3


def true(kind: ConditionType, reason: str, message: str = "") -> Finding:
    return Finding(kind, ConditionStatus.TRUE, reason, message)


def false(kind: ConditionType, reason: str, message: str) -> Finding:
    return Finding(kind, ConditionStatus.FALSE, reason, message)


def unknown(kind: ConditionType, reason: str, message: str) -> Finding:
    return Finding(kind, ConditionStatus.UNKNOWN, reason, message)


def topology_finding(conflicts: Sequence[Conflict]) -> Finding:
    """That all is there, or what is there instead."""
    if not conflicts:
        return true(ConditionType.TOPOLOGY_READY, "Present")
    said = [_said(list(same)) for _, same in groupby(conflicts, lambda each: (each.kind, each.name))]
    return false(ConditionType.TOPOLOGY_READY, "ArgumentsDiffer", ". ".join(said))


def _said(conflicts: Sequence[Conflict]) -> str:
    """All that is wrong with one object, and once what to do about it."""
    first = conflicts[0]
    named = [conflict.difference for conflict in conflicts[:_MOST_NAMED]]
    rest = len(conflicts) - len(named)
    more = [f"and differs in {rest} more ways"] if rest else []
    return f'{first.kind} "{first.name}" {", ".join([*named, *more])}; {first.cure}'


def topology_unseen(problem: BrokerProblem) -> Finding:
    """That nobody could look."""
    message = "the broker could not be looked at; another condition says why"
    return unknown(ConditionType.TOPOLOGY_READY, problem.reason, message)


def topology_unmade(findings: Iterable[Finding], problem: BrokerProblem) -> tuple[Finding, ...]:
    """As found, but that the topology could not be made so."""
    others = (finding for finding in findings if finding.type is not ConditionType.TOPOLOGY_READY)
    return (*others, false(ConditionType.TOPOLOGY_READY, problem.reason, problem.message))


def pods_user_finding(snapshot: Snapshot) -> Finding:
    """Whether the pods have a broker user of their own."""
    if snapshot.users is not None:
        return true(ConditionType.CREDENTIALS_VALID, "Valid")
    return true(
        ConditionType.CREDENTIALS_VALID,
        "SharedCredentials",
        "the credentials given for the broker may not manage users, so that pods use them as they are; "
        "give that user the tag administrator for a user of least privilege for each resource",
    )


PAUSED = true(
    ConditionType.PAUSED, "Paused", "spec.paused is true: nothing is changed or looked at until it is false"
)


def deleting(message: str) -> Finding:
    """That a deletion waits, and for what."""
    return false(ConditionType.TOPOLOGY_READY, "Deleting", message)
