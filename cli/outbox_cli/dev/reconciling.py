"""One round of what the operator does for each resource: look, plan, do, and tell how it is then."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias, assert_never

from outbox_cli.dev.board import Row
from outbox_cli.dev.child import Child
from outbox_cli.dev.containers import MOST_REPLICAS, ConfigError, References, program_of
from outbox_cli.dev.crew import Crew
from outbox_cli.dev.findings import availability, not_configured, not_run
from outbox_cli.dev.happenings import Happening, Kind
from outbox_cli.dev.manifests import Manifests
from outbox_cli.dev.site import Site
from outbox_operator.broker.actions import RemoveUser
from outbox_operator.broker.snapshot import BrokerProblem, Snapshot
from outbox_operator.broker.vhost import Vhost
from outbox_operator.children.names import Owner, kind_of
from outbox_operator.children.workload import Workload
from outbox_operator.conditions import Finding, in_order, ready
from outbox_operator.database import look as look_at_database
from outbox_operator.database_access import DatabaseAccess
from outbox_operator.planning import listener_plan, relay_plan
from outbox_operator.planning.claims import Claim, Obstacle, ownership
from outbox_operator.planning.findings import PAUSED, topology_unmade
from outbox_operator.planning.listener_plan import ListenerView
from outbox_operator.planning.marks import EVERYTHING
from outbox_operator.planning.plan import Plan
from outbox_operator.planning.pod_credentials import PodCredentials, draw
from outbox_operator.planning.relay_plan import RelayView
from outbox_operator.resources import OutboxListener, OutboxRelay
from outbox_operator.resources.condition import ConditionStatus
from outbox_operator.subscriptions import queues_of

State: TypeAlias = Snapshot | BrokerProblem


def name_of(owner: Owner) -> str:
    """What a resource is called here, as kubectl prints it."""
    return f"{kind_of(owner).lower()}/{owner.metadata.name}"


class Reconciler:
    """Has processes run, and the broker be, as manifests say."""

    def __init__(self, site: Site, crew: Crew) -> None:
        self._site = site
        self._crew = crew
        self._vhost = Vhost(site.access, on_change=lambda _: None, on_call=lambda _method, _status: None)
        self._credentials: dict[str, PodCredentials] = {}
        self._counts: Counter[tuple[str, Kind]] = Counter()

    async def close(self) -> None:
        """Close the connections."""
        await self._vhost.close()

    def count(self, happening: Happening) -> None:
        """Note what has happened, for the rows."""
        self._counts[happening.source, happening.kind] += 1

    def forget(self, name: str) -> None:
        """Stop the processes of a resource that is gone."""
        self._crew.dismiss(name)
        self._credentials.pop(name, None)

    async def reconcile(self, manifests: Manifests) -> tuple[Row, ...]:
        """See to every resource."""
        state = await self._vhost.look()
        if isinstance(state, Snapshot) and not self._site.is_private:
            # On a broker that is somebody else's no users are made.
            state = replace(state, users=None)
        relays = [await self._relay(relay, manifests, state) for relay in manifests.relays]
        listeners = [await self._listener(listener, manifests, state) for listener in manifests.listeners]
        return (*relays, *listeners)

    async def _relay(self, relay: OutboxRelay, manifests: Manifests, state: State) -> Row:
        database = await look_at_database(self._site.database_url, relay.spec.database)
        view = RelayView(
            relay=relay,
            access=self._site.access,
            entered=DatabaseAccess(self._site.database_url),
            broker=state,
            database=database,
            idle_tiers=(),
            credentials=self._credentials.get(name_of(relay)),
            image="outbox-relay",
            chance=draw(),
        )
        findings = await self._carried_out(relay, relay_plan.plan(view), manifests)
        return replace(self._row(relay, findings), backlog=database.backlog, parked=database.parked)

    def _obstacle(self, listener: OutboxListener, manifests: Manifests, state: State) -> Obstacle | None:
        """Another listener of the manifests, or of an operator, that has its queue."""
        if isinstance(state, BrokerProblem):
            return None
        claims = [Claim.of(each, self._vhost.identity) for each in manifests.listeners]
        claim = Claim.of(listener, self._vhost.identity)
        return ownership(claim, claims, state, EVERYTHING).obstacle

    async def _listener(self, listener: OutboxListener, manifests: Manifests, state: State) -> Row:
        name = name_of(listener)
        view = ListenerView(
            listener=listener,
            relay=_relay_of(listener, manifests.relays),
            access=self._site.access,
            broker=state,
            obstacle=self._obstacle(listener, manifests, state),
            credentials=self._credentials.get(name),
            chance=draw(),
            has_keda=False,
        )
        findings = await self._carried_out(listener, listener_plan.plan(view), manifests)
        queue, letters = queues_of(listener)
        return replace(
            self._row(listener, findings),
            backlog=state.messages(queue) if isinstance(state, Snapshot) else None,
            dead_letters=state.messages(letters) if isinstance(state, Snapshot) else None,
            handled=self._counts[name, Kind.HANDLED],
            retries=self._counts[name, Kind.RETRIED],
            dead_lettered=self._counts[name, Kind.DEAD_LETTERED],
        )

    async def _carried_out(self, owner: Owner, plan: Plan, manifests: Manifests) -> tuple[Finding, ...]:
        """Do what a plan says: the broker, then the processes, then away with the users of those before."""
        if owner.spec.paused:
            return (PAUSED,)
        if plan.actions and (problem := await self._vhost.perform(plan.actions)):
            return (*topology_unmade(plan.findings, problem), *self._as_they_are(owner))
        if plan.credentials is not None:
            self._credentials[name_of(owner)] = plan.credentials
        found = self._staffed(owner, plan, manifests)
        if plan.retired_users and all(child.is_ready for child in self._crew.of(name_of(owner))):
            await self._vhost.perform([RemoveUser(name) for name in plan.retired_users])
        return (*plan.findings, *found)

    def _staffed(self, owner: Owner, plan: Plan, manifests: Manifests) -> tuple[Finding, ...]:
        """Have the processes that a plan wants, and tell how they are."""
        match plan.pods:
            case Workload() as workload:
                return (self._run(owner, workload, manifests),)
            case "None":
                self._crew.dismiss(name_of(owner))
                return ()
            case "AsTheyAre":
                return self._as_they_are(owner)
            case _:
                assert_never(plan.pods)

    def _as_they_are(self, owner: Owner) -> tuple[Finding, ...]:
        """Tell how the processes are, where there are some, and no more."""
        children = self._crew.of(name_of(owner))
        return (availability(children),) if children else ()

    def _run(self, owner: Owner, workload: Workload, manifests: Manifests) -> Finding:
        name, wanted = name_of(owner), workload.replicas or 0
        try:
            program = program_of(workload, self._references(owner, workload, manifests))
        except ConfigError as error:
            self._crew.dismiss(name)
            return not_configured(str(error))
        if program is None:
            self._crew.dismiss(name)
            return not_run(workload.image)
        self._crew.want(name, program, min(wanted, MOST_REPLICAS))
        return availability(self._crew.of(name))

    def _references(self, owner: Owner, workload: Workload, manifests: Manifests) -> References:
        """What the files have, but for the Secrets that say how the services are entered: those are ours."""
        written = manifests.references
        secrets = dict(written.secrets)
        for relay in manifests.relays:
            secrets |= self._site.secrets_for(relay)
        secrets[workload.secret_name] = self._credentials[name_of(owner)].data
        return replace(written, secrets=secrets)

    def _row(self, owner: Owner, findings: Sequence[Finding]) -> Row:
        total = ready(findings)
        return Row(
            resource=name_of(owner),
            ready=total.status,
            reason=total.reason,
            message="" if total.status is ConditionStatus.TRUE else total.message,
            conditions=tuple(in_order(findings)),
            running=_running(self._crew.of(name_of(owner)), owner),
        )


def _running(children: Sequence[Child], owner: Owner) -> str:
    """How many are ready of those that run, of those that a cluster would run."""
    if not children:
        return ""
    wanted = owner.spec.replicas if isinstance(owner, OutboxRelay) else _replicas_of(owner)
    ready_ones = f"{sum(child.is_ready for child in children)}/{len(children)}"
    return f"{ready_ones} of {wanted}" if wanted > MOST_REPLICAS else ready_ones


def _replicas_of(listener: OutboxListener) -> int:
    return listener.spec.worker.replicas if listener.spec.worker else 0


def _relay_of(listener: OutboxListener, relays: Sequence[OutboxRelay]) -> OutboxRelay | None:
    return next((relay for relay in relays if relay.metadata.name == listener.spec.relay_ref.name), None)
