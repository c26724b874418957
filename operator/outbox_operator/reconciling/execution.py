"""Carrying out a plan: the broker first, then the Secret, then the pods; each step safe to repeat."""

import logging
from dataclasses import replace
from datetime import UTC, datetime
from typing import assert_never

from outbox_core.logs import event
from outbox_operator.broker.actions import RemoveUser
from outbox_operator.broker.removal_plan import tier_removal
from outbox_operator.broker.snapshot import Snapshot
from outbox_operator.broker.vhosts import Vhost
from outbox_operator.children.autoscaling import autoscaling_of
from outbox_operator.children.family import children, no_children
from outbox_operator.children.manifest import Manifest
from outbox_operator.children.names import Owner, child_name, is_child, selector_text
from outbox_operator.children.notes import NOTHING_RETIRED, has_retired, secret_of
from outbox_operator.children.pod_trouble import finding as trouble_finding
from outbox_operator.children.pod_trouble import pod_trouble
from outbox_operator.children.rollout import Rollout, rollout
from outbox_operator.children.workload import Workload
from outbox_operator.cluster.errors import ConflictError, ForbiddenError, RefusedError
from outbox_operator.cluster.kinds import DEPLOYMENT
from outbox_operator.conditions import Finding
from outbox_operator.planning.findings import false, topology_unmade
from outbox_operator.planning.plan import Plan
from outbox_operator.planning.pod_credentials import PodCredentials
from outbox_operator.reconciling.key import Key
from outbox_operator.reconciling.offspring import Offspring
from outbox_operator.reconciling.outcome import Outcome
from outbox_operator.reconciling.pod_secrets import PodSecrets
from outbox_operator.reconciling.world import World
from outbox_operator.resources import OutboxListener
from outbox_operator.resources.condition import ConditionStatus, ConditionType

_FIRST_LOOK_SECONDS = 3.0
_LAST_LOOK_SECONDS = 300.0

_log = logging.getLogger("outbox.operator")


class Execution:
    """Carries out plans."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._offspring = Offspring(world.cluster, world.store)
        self._secrets = PodSecrets(world.cluster)

    async def carry_out(self, owner: Owner, plan: Plan, vhost: Vhost | None) -> Outcome:
        if vhost is not None and plan.actions:
            self._world.fence.check()
            problem = await vhost.perform(plan.actions)
            if problem is not None:
                findings = topology_unmade(plan.findings, problem)
                return replace(await self._leave_pods(owner, findings), failed=True)
        if vhost is not None:
            await self._remove_tiers(plan.idle_tiers, vhost)
        try:
            return await self._make_pods(owner, plan, vhost)
        except (ConflictError, ForbiddenError, RefusedError) as error:
            reason = type(error).__name__.removesuffix("Error")
            refused = false(ConditionType.WORKLOAD_AVAILABLE, reason, str(error))
            return Outcome((*plan.findings, refused), None, failed=True)

    async def credentials_of(self, owner: Owner) -> PodCredentials | None:
        """What its pods have; None where there are no pods."""
        if isinstance(owner, OutboxListener) and owner.spec.worker is None:
            return None
        return await self._secrets.of(owner, self._own_deployment(owner))

    async def has_pods(self, owner: Owner) -> bool:
        """Whether some of them still run, also where their Deployment is gone."""
        if isinstance(owner, OutboxListener) and owner.spec.worker is None:
            return False
        return bool(await self._world.cluster.pods_of(owner.metadata.namespace, selector_text(owner)))

    async def has_workload(self, owner: Owner) -> bool:
        """Whether it has pods, or a Deployment that would start some."""
        return self._own_deployment(owner) is not None or await self.has_pods(owner)

    async def has_rolled_over(self, owner: Owner, outcome: Outcome) -> bool:
        """Whether all pods that run are of the newest template, or there are none."""
        if outcome.rollout is not None and not outcome.rollout.is_complete:
            return False
        pods = await self._world.cluster.pods_of(owner.metadata.namespace, selector_text(owner))
        has_none = outcome.rollout is None
        return not any(has_none or pod["metadata"].get("deletionTimestamp") for pod in pods)

    async def stop_pods(self, owner: Owner) -> None:
        """Remove them, where there are any, and what they entered with."""
        live = self._own_deployment(owner)
        await self._secrets.remove_all(owner, live)
        if live is not None:
            await self._offspring.remove(owner, no_children(owner, self._world.facilities), live)

    def look_again(self, key: Key, outcome: Outcome) -> None:
        """Come back to pods that are not there yet, or not gone yet."""
        if outcome.look_again_seconds is not None:
            self._world.queue.add_after(key, outcome.look_again_seconds)

    def forget(self, key: Key) -> None:
        """A resource is gone."""
        self._secrets.forget(key)

    def forget_deployment(self, namespace: str, name: str) -> None:
        """A Deployment is gone, and what was made beside it may be."""
        self._offspring.forget(namespace, name)

    async def _remove_tiers(self, names: tuple[str, ...], vhost: Vhost) -> None:
        """Remove each where that goes; where it has got a message meanwhile, a later look sees to it."""
        for name in names:
            self._world.fence.check()
            if not isinstance(vhost.state, Snapshot):
                return
            removal = tier_removal(name, vhost.state, self._world.domain.installation)
            if problem := await vhost.perform(removal):
                event(_log, logging.INFO, "tier not removed", tier=name, cause=problem.message)

    async def _make_pods(self, owner: Owner, plan: Plan, vhost: Vhost | None) -> Outcome:
        match plan.pods:
            case Workload():
                return await self._run_pods(owner, plan.pods, plan, vhost)
            case "None":
                await self.stop_pods(owner)
                again = await self._retire(owner, None, plan, vhost)
                return Outcome(plan.findings, None, has_no_pods=True, look_again_seconds=again)
            case "AsTheyAre":
                return await self._leave_pods(owner, plan.findings)
            case _:
                assert_never(plan.pods)

    async def _run_pods(self, owner: Owner, workload: Workload, plan: Plan, vhost: Vhost | None) -> Outcome:
        live = self._deployment(owner)
        if plan.credentials is not None:
            await self._keep_secret(owner, plan.credentials, live)
        live = await self._offspring.apply(owner, children(workload, self._world.facilities), live)
        found = await self._look(owner, live)
        if found.is_complete:
            again = await self._retire(owner, live, plan, vhost)
        else:
            again = _pause_seconds(owner, found)
        finding = _availability(owner, workload, found)
        return Outcome((*plan.findings, finding), found, look_again_seconds=again)

    async def _leave_pods(self, owner: Owner, findings: tuple[Finding, ...]) -> Outcome:
        """Say how they are, and no more."""
        live = self._own_deployment(owner)
        if live is None:
            return Outcome(findings, None)
        found = await self._look(owner, live)
        again = None if found.is_complete else _pause_seconds(owner, found)
        return Outcome((*findings, found.finding), found, look_again_seconds=again)

    async def _keep_secret(self, owner: Owner, credentials: PodCredentials, live: Manifest | None) -> None:
        if live is None or secret_of(live) != credentials.name:
            await self._secrets.make(owner, credentials)
        elif not rollout(live).is_complete:
            # It may be for want of it that pods do not start.
            await self._secrets.mend(owner, credentials)

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

    async def _retire(
        self, owner: Owner, live: Manifest | None, plan: Plan, vhost: Vhost | None
    ) -> float | None:
        """Take away what pods of before entered with, when the last of them is gone; else when to look again.

        `live` is what others run on for; without it all pods are of before.
        """
        is_noted = live is not None and has_retired(live)
        if not is_noted and not plan.retired_users:
            return None
        cluster, namespace = self._world.cluster, owner.metadata.namespace
        pods = await cluster.pods_of(namespace, selector_text(owner))
        if leaving := [pod for pod in pods if live is None or pod["metadata"].get("deletionTimestamp")]:
            return _pause(min(map(_leaving_since, leaving)))
        if vhost is not None and plan.retired_users:
            self._world.fence.check()
            if problem := await vhost.perform([RemoveUser(name) for name in plan.retired_users]):
                event(_log, logging.WARNING, "broker users not removed", cause=problem.message)
                return _LAST_LOOK_SECONDS
        if live is not None and is_noted:
            await self._secrets.remove_retired(owner, live)
            patched = await cluster.patch(DEPLOYMENT, namespace, live["metadata"]["name"], NOTHING_RETIRED)
            self._world.store.put(DEPLOYMENT, patched)
        return None

    def _deployment(self, owner: Owner) -> Manifest | None:
        return self._world.store.deployments.get((owner.metadata.namespace, child_name(owner)))

    def _own_deployment(self, owner: Owner) -> Manifest | None:
        live = self._deployment(owner)
        return live if live and is_child(live, owner) else None


def _pause_seconds(owner: Owner, pods: Rollout) -> float:
    """How long to wait before another look at pods, by how long they have been as they are."""
    for condition in owner.status.conditions:
        if condition.type == ConditionType.WORKLOAD_AVAILABLE and condition.status == pods.finding.status:
            return _pause(condition.last_transition_time)
    return _FIRST_LOOK_SECONDS


def _pause(since: datetime) -> float:
    """Half of the time that something has been so: looks come less and less often."""
    age = (datetime.now(UTC) - since).total_seconds()
    return min(max(age / 2, _FIRST_LOOK_SECONDS), _LAST_LOOK_SECONDS)


def _leaving_since(pod: Manifest) -> datetime:
    """When a pod should have been gone; now where nobody has asked it to go yet."""
    stamp = pod["metadata"].get("deletionTimestamp")
    return datetime.fromisoformat(stamp) if stamp else datetime.now(UTC)


def _availability(owner: Owner, workload: Workload, pods: Rollout) -> Finding:
    """What is said of the pods; that nobody scales them, where that was asked for, comes after their own."""
    is_well = pods.finding.status is ConditionStatus.TRUE
    autoscaling = autoscaling_of(owner)
    if not is_well or autoscaling is None or workload.replicas is None:
        return pods.finding
    return false(
        ConditionType.WORKLOAD_AVAILABLE,
        "KedaMissing",
        "worker.autoscaling needs KEDA, which this cluster does not have; install it, or set worker.replicas "
        f"instead. Until then there are {pods.replicas} workers",
    )
