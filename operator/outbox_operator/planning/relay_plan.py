"""From an OutboxRelay and what was seen of the world to what has to be done. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from outbox.topology import TopologyError, topology
from outbox_operator.broker.access import BrokerAccess
from outbox_operator.broker.snapshot import BrokerProblem, Snapshot
from outbox_operator.broker.topology_plan import topology_actions
from outbox_operator.broker.user_plan import relay_permissions
from outbox_operator.children.workload import relay_workload
from outbox_operator.conditions import Finding
from outbox_operator.database_access import DatabaseAccess
from outbox_operator.database_view import DatabaseView
from outbox_operator.planning.findings import (
    Part,
    exchange_finding,
    false,
    pods_user_finding,
    topology_unseen,
    unknown,
    with_plain_parts,
)
from outbox_operator.planning.marks import EVERYTHING, Domain, sharing_installations
from outbox_operator.planning.plan import Plan
from outbox_operator.planning.pod_credentials import Chance, PodCredentials, entrance
from outbox_operator.resources import OutboxRelay
from outbox_operator.resources.condition import ConditionStatus, ConditionType
from outbox_operator.subscriptions import exchange_of

_DATABASE_UNSEEN = unknown(
    ConditionType.DATABASE_READY,
    "CredentialsInvalid",
    "the database could not be looked at; another condition says why",
)


@dataclass(frozen=True, slots=True)
class RelayView:
    """What was seen."""

    relay: OutboxRelay
    """The relay."""
    access: BrokerAccess | Finding
    """How its broker is entered, or what is wrong with the Secret that says it."""
    entered: DatabaseAccess | Finding
    """How its database is entered, or what is wrong with the Secret that says it."""
    broker: Snapshot | BrokerProblem
    """The virtual host, or why it cannot be seen."""
    database: DatabaseView | None
    """The database; None where nobody could look."""
    idle_tiers: tuple[str, ...]
    """Delay tiers that no listener has needed for a while, and that are empty."""
    credentials: PodCredentials | None
    """What its pods enter with by now."""
    image: str
    """The operator's image for relays that name none."""
    chance: Chance
    """For a user that is to be made."""
    domain: Domain = EVERYTHING
    """What this operator manages."""


def plan(view: RelayView) -> Plan:
    if isinstance(view.access, Finding):
        problem = BrokerProblem(view.access.reason, view.access.message)
        return Plan(_findings(view, [view.access], topology_unseen(problem)))
    if isinstance(view.broker, BrokerProblem):
        wrong = false(ConditionType.CREDENTIALS_VALID, view.broker.reason, view.broker.message)
        return Plan(_findings(view, [wrong], topology_unseen(view.broker)))
    try:
        needed = topology(exchange_of(view.relay), [])
    except TopologyError as error:
        return Plan(_findings(view, [], false(ConditionType.TOPOLOGY_READY, "InvalidName", str(error))))
    made = topology_actions(needed, exchange_of(view.relay), view.broker)
    exchange = view.relay.spec.exchange
    sharing = sharing_installations(exchange, view.broker, view.domain)
    topology_found = exchange_finding(made, exchange, sharing)
    findings = _findings(view, [pods_user_finding(view.broker, view.access)], topology_found)
    bare = Plan(findings, made.actions, idle_tiers=view.idle_tiers)
    if made.conflicts or isinstance(view.entered, Finding):
        return bare
    return _with_pods(view, view.access, view.entered, view.broker, bare)


def _with_pods(
    view: RelayView, access: BrokerAccess, database: DatabaseAccess, snapshot: Snapshot, bare: Plan
) -> Plan:
    relay = view.relay
    permissions = relay_permissions(exchange_of(relay))
    entered = entrance(
        relay,
        view.credentials,
        access,
        snapshot=snapshot,
        permissions=permissions,
        chance=view.chance,
        database=database,
    )
    if entered is None:
        return bare
    workload = relay_workload(
        relay,
        image=view.image,
        secret_name=entered.credentials.name,
        has_ca=access.ca is not None,
        has_database_ca=database.ca is not None,
    )
    return Plan(
        findings=bare.findings,
        actions=(*bare.actions, *entered.actions),
        credentials=entered.credentials,
        pods=workload,
        idle_tiers=bare.idle_tiers,
        retired_users=entered.retired_users,
    )


def _findings(view: RelayView, broker: Iterable[Finding], topology: Finding) -> tuple[Finding, ...]:
    """With one finding about credentials: the first that is wrong, the broker's before the database's."""
    wrong = [view.entered] if isinstance(view.entered, Finding) else []
    seen = view.database.findings if view.database else (_DATABASE_UNSEEN,)
    entering = [*broker, *wrong, *(f for f in seen if f.type is ConditionType.CREDENTIALS_VALID)]
    entering.sort(key=lambda finding: finding.status is ConditionStatus.TRUE)
    others = (finding for finding in seen if finding.type is not ConditionType.CREDENTIALS_VALID)
    vacuum = (view.database.vacuum,) if view.database and view.database.vacuum else ()
    if entering and entering[0].status is ConditionStatus.TRUE:
        entering[0] = with_plain_parts(entering[0], _plain_parts(view))
    return (*entering[:1], *others, topology, *vacuum)


def _plain_parts(view: RelayView) -> list[Part]:
    """What is entered over a network without TLS."""
    parts: list[Part] = []
    if isinstance(view.access, BrokerAccess) and view.access.is_plain:
        parts.append("broker")
    if view.database is not None and view.database.is_plain:
        parts.append("database")
    return parts
