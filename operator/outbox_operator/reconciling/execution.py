"""Carrying out a plan: the broker first, then the Secret, then the pods; each step safe to repeat."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, assert_never

from outbox_operator.broker.actions import RemoveUser
from outbox_operator.broker.snapshot import BrokerProblem
from outbox_operator.broker.vhosts import Vhost
from outbox_operator.children.applying import to_apply
from outbox_operator.children.autoscaling import autoscaling_of
from outbox_operator.children.family import Children, children, no_children
from outbox_operator.children.manifest import Manifest
from outbox_operator.children.names import Owner, child_name, is_child, selector_text
from outbox_operator.children.notes import (
    NOTHING_RETIRED,
    children_of,
    retired_secrets,
    secret_of,
    with_notes,
)
from outbox_operator.children.pod_trouble import finding as trouble_finding
from outbox_operator.children.pod_trouble import pod_trouble
from outbox_operator.children.rollout import Rollout, rollout
from outbox_operator.children.workload import Workload
from outbox_operator.cluster.errors import ConflictError, ForbiddenError, RefusedError
from outbox_operator.cluster.kinds import ALL, DEPLOYMENT, SECRET
from outbox_operator.conditions import Finding
from outbox_operator.planning.findings import false
from outbox_operator.planning.plan import Plan
from outbox_operator.planning.pod_credentials import PodCredentials
from outbox_operator.planning.pod_credentials import read as read_credentials
from outbox_operator.reconciling.key import Key
from outbox_operator.reconciling.world import World
from outbox_operator.resources.condition import ConditionStatus, ConditionType

_FIRST_LOOK_SECONDS = 3.0
_LAST_LOOK_SECONDS = 300.0
_KINDS = {kind.kind: kind for kind in ALL}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is true after a plan was carried out."""

    findings: tuple[Finding, ...]
    """Each side of the resource."""
    rollout: Rollout | None
    """The pods; None where there are none, or nothing was done about them."""
    failed: bool = False
    """Whether some of it has to be tried again."""
    is_unfinished: bool = False
    """Whether to look again before long: pods tell nobody when they begin to fail."""

    def status_of(self, kind: ConditionType) -> ConditionStatus | None:
        """What was found of one side."""
        return next((finding.status for finding in self.findings if finding.type is kind), None)

    def pod_fields(self, owner: Owner) -> dict[str, Any]:
        """What the status says of the pods; nothing where nothing was seen of them."""
        if self.rollout is None:
            return {}
        return {
            "replicas": self.rollout.replicas,
            "ready_replicas": self.rollout.ready_replicas,
            "selector": selector_text(owner),
        }


class Execution:
    """Carries out plans."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._applied: dict[tuple[str, str, str], Manifest] = {}
        """What was last applied of the children that nobody watches, by their kind, namespace and name."""
        self._credentials: dict[tuple[str, str], PodCredentials] = {}
        """What the pods of each Deployment have, so that it is not read for every look."""

    async def carry_out(self, owner: Owner, plan: Plan, vhost: Vhost | None) -> Outcome:
        if vhost is not None and plan.actions:
            self._world.fence.check()
            problem = await vhost.perform(plan.actions)
            if problem is not None:
                return Outcome(_with_broker_problem(plan.findings, problem), None, failed=True)
        try:
            pods = await self._make_pods(owner, plan, vhost)
        except (ConflictError, ForbiddenError, RefusedError) as error:
            reason = type(error).__name__.removesuffix("Error")
            refused = false(ConditionType.WORKLOAD_AVAILABLE, reason, str(error))
            return Outcome((*plan.findings, refused), None, failed=True)
        if pods is None:
            return Outcome(plan.findings, None)
        is_unfinished = not pods.is_complete or bool(plan.retired_users)
        return Outcome((*plan.findings, _availability(owner, plan, pods)), pods, is_unfinished=is_unfinished)

    async def credentials_of(self, owner: Owner) -> PodCredentials | None:
        """What its pods have; None where there are no pods."""
        live = self._deployment(owner)
        name = secret_of(live) if live else None
        if name is None:
            return None
        place = (owner.metadata.namespace, child_name(owner))
        known = self._credentials.get(place)
        if known is not None and known.name == name:
            return known
        secret = await self._world.cluster.get(SECRET, owner.metadata.namespace, name)
        if secret is None:
            return None
        return self._credentials.setdefault(place, read_credentials(secret))

    async def stop_pods(self, owner: Owner) -> None:
        """Remove them, where there are any."""
        live = self._deployment(owner)
        if live is not None and is_child(live, owner):
            await self._remove(owner, no_children(owner, self._world.facilities), live)

    def look_again(self, key: Key, owner: Owner, outcome: Outcome) -> None:
        """Come back to pods that are not there yet, less and less often."""
        if outcome.is_unfinished:
            self._world.queue.add_after(key, _pause_seconds(owner, outcome))

    def forget(self, namespace: str, name: str) -> None:
        """A Deployment is gone."""
        self._credentials.pop((namespace, name), None)
        for place in [place for place in self._applied if place[1:] == (namespace, name)]:
            del self._applied[place]

    async def _make_pods(self, owner: Owner, plan: Plan, vhost: Vhost | None) -> Rollout | None:
        match plan.pods:
            case Workload():
                return await self._apply_pods(owner, plan.pods, plan, vhost)
            case "None":
                await self.stop_pods(owner)
                return None
            case "AsTheyAre":
                live = self._deployment(owner)
                return await self._look(owner, live) if live else None
            case _:
                assert_never(plan.pods)

    async def _apply_pods(self, owner: Owner, workload: Workload, plan: Plan, vhost: Vhost | None) -> Rollout:
        live = self._deployment(owner)
        if live is not None and not is_child(live, owner):
            raise RefusedError(
                f"Deployment {live['metadata']['name']} exists and is not this resource's; "
                "delete it, or give the resource another name"
            )
        if plan.credentials is not None and (live is None or secret_of(live) != plan.credentials.name):
            await self._apply_secret(owner, plan.credentials)
        family = children(workload, self._world.facilities)
        if live is not None:
            await self._remove(owner, family, live)
        for manifest in family.wanted:
            if manifest["kind"] == DEPLOYMENT.kind:
                live = await self._apply_deployment(with_notes(manifest, live, family), live)
            else:
                await self._apply_other(manifest)
        assert live is not None  # noqa: S101 - a workload has a Deployment
        found = await self._look(owner, live)
        if found.is_complete:
            await self._retire(owner, live, plan, vhost)
        return found

    async def _apply_secret(self, owner: Owner, credentials: PodCredentials) -> None:
        cluster, manifest = self._world.cluster, credentials.manifest(owner)
        try:
            await cluster.apply(manifest, force=True)
        except RefusedError:
            # It cannot be changed, and is from a look that ended before any pod knew of it.
            await cluster.delete(SECRET, owner.metadata.namespace, credentials.name, None)
            await cluster.apply(manifest, force=True)
        self._credentials[owner.metadata.namespace, child_name(owner)] = credentials

    async def _apply_deployment(self, desired: Manifest, live: Manifest | None) -> Manifest:
        for step in to_apply(desired, live):
            # One that nobody watches may be somebody's own: nothing is taken from them.
            force = step.force and live is not None
            live = await self._world.cluster.apply(step.manifest, force=force, manager=step.manager)
            self._world.store.put(DEPLOYMENT, live)
        assert live is not None  # noqa: S101 - what is missing is applied
        return live

    async def _apply_other(self, manifest: Manifest) -> None:
        metadata = manifest["metadata"]
        place = (manifest["kind"], metadata["namespace"], metadata["name"])
        if self._applied.get(place) != manifest:
            await self._world.cluster.apply(manifest, force=True)
            self._applied[place] = manifest

    async def _remove(self, owner: Owner, family: Children, live: Manifest) -> None:
        """Remove the children that are there and should not be; the Deployment last, which tells of them."""
        namespace, there = owner.metadata.namespace, children_of(live)
        for kind, name in family.unwanted:
            if kind in there:
                await self._world.cluster.delete(_KINDS[kind], namespace, name, None)
                self._applied.pop((kind, namespace, name), None)
        if (DEPLOYMENT.kind, child_name(owner)) in family.unwanted:
            uid = live["metadata"]["uid"]
            await self._world.cluster.delete(DEPLOYMENT, namespace, child_name(owner), uid)

    async def _look(self, owner: Owner, live: Manifest) -> Rollout:
        """How the pods are; where they are not all well, also from what they say themselves."""
        found = rollout(live)
        if found.is_complete:
            return found
        cluster, namespace = self._world.cluster, owner.metadata.namespace
        trouble = pod_trouble(await cluster.pods_of(namespace, selector_text(owner)))
        if trouble is None:
            return found
        line = None
        if trouble.needs_log and trouble.container:
            line = await cluster.last_log_line(namespace, trouble.pod, trouble.container)
        return replace(found, finding=trouble_finding(trouble, line))

    async def _retire(self, owner: Owner, live: Manifest, plan: Plan, vhost: Vhost | None) -> None:
        """Take away what pods of before entered with, when the last of them is gone."""
        secrets = retired_secrets(live)
        if not secrets and not plan.retired_users:
            return
        cluster, namespace = self._world.cluster, owner.metadata.namespace
        pods = await cluster.pods_of(namespace, selector_text(owner))
        if any(pod["metadata"].get("deletionTimestamp") for pod in pods):
            return
        if vhost is not None and plan.retired_users:
            await vhost.perform([RemoveUser(name) for name in plan.retired_users])
        for name in secrets:
            await cluster.delete(SECRET, namespace, name, None)
        if secrets:
            name = live["metadata"]["name"]
            patched = await cluster.patch(DEPLOYMENT, namespace, name, NOTHING_RETIRED)
            self._world.store.put(DEPLOYMENT, patched)

    def _deployment(self, owner: Owner) -> Manifest | None:
        return self._world.store.deployments.get((owner.metadata.namespace, child_name(owner)))


def _pause_seconds(owner: Owner, outcome: Outcome) -> float:
    """Half of the time that the pods have been as they are."""
    status = outcome.status_of(ConditionType.WORKLOAD_AVAILABLE)
    for condition in owner.status.conditions:
        if condition.type == ConditionType.WORKLOAD_AVAILABLE and condition.status == status:
            age = (datetime.now(UTC) - condition.last_transition_time).total_seconds()
            return min(max(age / 2, _FIRST_LOOK_SECONDS), _LAST_LOOK_SECONDS)
    return _FIRST_LOOK_SECONDS


def _with_broker_problem(findings: tuple[Finding, ...], problem: BrokerProblem) -> tuple[Finding, ...]:
    """As found, but that the topology could not be made so."""
    others = (finding for finding in findings if finding.type is not ConditionType.TOPOLOGY_READY)
    return (*others, false(ConditionType.TOPOLOGY_READY, problem.reason, problem.message))


def _availability(owner: Owner, plan: Plan, pods: Rollout) -> Finding:
    """What is said of the pods; that nobody scales them, where that was asked for, comes after their own."""
    is_well = pods.finding.status is ConditionStatus.TRUE
    autoscaling = autoscaling_of(owner)
    is_unscaled = isinstance(plan.pods, Workload) and plan.pods.replicas is not None
    if not is_well or autoscaling is None or not is_unscaled:
        return pods.finding
    return false(
        ConditionType.WORKLOAD_AVAILABLE,
        "KedaMissing",
        "worker.autoscaling needs KEDA, which this cluster does not have; install it, or set worker.replicas "
        f"instead. Until then there are {pods.replicas} workers",
    )
