"""The words for what both kinds of resource may find. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Literal, TypeAlias

from outbox_operator.broker.access import BrokerAccess
from outbox_operator.broker.conflicts import Conflict
from outbox_operator.broker.policies import PolicyConflict
from outbox_operator.broker.snapshot import BrokerProblem, ObservedBinding, Snapshot
from outbox_operator.broker.topology_plan import TopologyPlan
from outbox_operator.conditions import Finding
from outbox_operator.resources.condition import ConditionStatus, ConditionType

HARMFUL_POLICY = "HarmfulPolicy"
"""The reason of a topology that is there, and that a policy of the broker harms."""

_MOST_NAMED = 3


def true(kind: ConditionType, reason: str, message: str = "") -> Finding:
    return Finding(kind, ConditionStatus.TRUE, reason, message)


def false(kind: ConditionType, reason: str, message: str) -> Finding:
    return Finding(kind, ConditionStatus.FALSE, reason, message)


def unknown(kind: ConditionType, reason: str, message: str) -> Finding:
    return Finding(kind, ConditionStatus.UNKNOWN, reason, message)


def topology_finding(made: TopologyPlan) -> Finding:
    """That all is there, or what is there instead, or what would happen to messages in it."""
    kind = ConditionType.TOPOLOGY_READY
    wrong: list[Conflict | PolicyConflict] = [*made.conflicts, *made.policies]
    said = [_said(list(same)) for _, same in groupby(wrong, lambda each: (each.kind, each.name))]
    if made.conflicts:
        return false(kind, "ArgumentsDiffer", ". ".join(said))
    if made.policies:
        more = f". And {len(said) - _MOST_NAMED} more objects" if len(said) > _MOST_NAMED else ""
        return false(kind, HARMFUL_POLICY, ". ".join(said[:_MOST_NAMED]) + more)
    if made.hidden:
        message = (
            f'queue "{made.hidden[0]}" exists, and the broker tells nothing else of it: too many of the '
            "nodes that hold it are away; start them"
        )
        return unknown(kind, "QueueUnavailable", message)
    return true(kind, "Present")


def queue_finding(made: TopologyPlan, foreign: Sequence[ObservedBinding]) -> Finding:
    """As `topology_finding`; `foreign` are bindings of the same listener that another installation made."""
    found = topology_finding(made)
    if not foreign or found.status is not ConditionStatus.TRUE:
        return found
    queue, others = foreign[0].binding.queue, _named_installations(each.installation for each in foreign)
    message = (
        f'queue "{queue}" is also bound by {others}: those bindings are left alone, and the queue is not '
        "deleted with this resource; if that installation is gone, remove them"
    )
    return true(ConditionType.TOPOLOGY_READY, "Shared", message)


def exchange_finding(made: TopologyPlan, exchange: str, installations: Sequence[str]) -> Finding:
    """As `topology_finding`, and which other installations use the exchange too."""
    found = topology_finding(made)
    if not installations or found.status is not ConditionStatus.TRUE:
        return found
    message = (
        f'exchange "{exchange}" is also used by {_named_installations(installations)}: its bindings and '
        "delay tiers are left alone, and the exchange is not deleted with this resource"
    )
    return true(ConditionType.TOPOLOGY_READY, "Shared", message)


def is_made(finding: Finding) -> bool:
    """Whether the topology is there, if only with a policy that harms it."""
    return finding.status is ConditionStatus.TRUE or finding.reason == HARMFUL_POLICY


def _named_installations(ids: Iterable[str]) -> str:
    named = sorted({each for each in ids if each})
    if not named:
        return "another operator"
    more = f" and {len(named) - 1} more" if len(named) > 1 else ""
    return f"another operator, of installation {named[0]}{more}"


def _said(conflicts: Sequence[Conflict | PolicyConflict]) -> str:
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


def pods_user_finding(snapshot: Snapshot, access: BrokerAccess) -> Finding:
    """Whether the pods have a broker user of their own."""
    if snapshot.users is not None:
        return true(ConditionType.CREDENTIALS_VALID, "Valid")
    if access.is_secret_from_pods:
        return false(
            ConditionType.CREDENTIALS_VALID,
            "AdministratorTagMissing",
            "the user in the Secret of spec.broker.administratorSecretRef may not manage users, and pods may "
            "not use it; have whoever runs the operator give it the tag administrator",
        )
    return true(
        ConditionType.CREDENTIALS_VALID,
        "SharedCredentials",
        "the credentials given for the broker may not manage users, so that pods use them as they are; "
        "give that user the tag administrator for a user of least privilege for each resource",
    )


FAILED = unknown(
    ConditionType.TOPOLOGY_READY,
    "InternalError",
    "the operator failed while it reconciled this resource, and tries again; its log has the error",
)


PAUSED = true(
    ConditionType.PAUSED, "Paused", "spec.paused is true: nothing is changed or looked at until it is false"
)


def host_not_allowed(host: str) -> Finding:
    """That a Secret or a resource names a host that whoever installed the operator has not listed."""
    return false(
        ConditionType.CREDENTIALS_VALID,
        "HostNotAllowed",
        f'host "{host}" is not among those that the operator may connect to, or its addresses are not; name '
        "another one, or have it added to settings.allowedHosts of the operator's chart",
    )


Part: TypeAlias = Literal["broker", "database"]
"""What a connection leads to."""

_TLS_CURES: dict[Part, str] = {
    "broker": "write amqps:// into its Secret, and https:// into spec.broker.managementUrl",
    "database": "add sslmode=verify-full to the URL in its Secret, or set spec.database.caSecretRef",
}


def with_plain_parts(entered: Finding, parts: Sequence[Part]) -> Finding:
    """The same finding about credentials, saying which connections go over the network without TLS."""
    notes = [
        f"the connection to the {part} has no TLS: whoever is in between can read and change all of it; "
        f"{_TLS_CURES[part]}"
        for part in parts
    ]
    return replace(entered, message=". ".join(filter(None, [entered.message, *notes])))


def tls_required(part: Part) -> Finding:
    """That a connection could go without TLS, which whoever installed the operator does not want."""
    return false(
        ConditionType.CREDENTIALS_VALID,
        "TlsRequired",
        f"the {part} could be entered without TLS, which settings.requireTls of the operator's chart "
        f"forbids; {_TLS_CURES[part]}",
    )


def deleting(message: str) -> Finding:
    """That a deletion waits, and for what."""
    return false(ConditionType.TOPOLOGY_READY, "Deleting", message)
