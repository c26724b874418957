"""The operator: what it hears of, whom it looks at then, and the hands that do it."""

import asyncio
import logging
import time
from collections.abc import Iterable
from contextlib import closing
from weakref import WeakKeyDictionary

from outbox_core.logs import event
from outbox_operator.allowed_hosts import AllowedHosts
from outbox_operator.broker.identity import VhostIdentity
from outbox_operator.broker.snapshot import BrokerProblem
from outbox_operator.broker.vhosts import Vhost, Vhosts
from outbox_operator.children.family import Facilities
from outbox_operator.cluster.client import Cluster
from outbox_operator.cluster.connection import Connection
from outbox_operator.cluster.errors import ClusterError, NotLeaderError
from outbox_operator.cluster.events import Recorder
from outbox_operator.cluster.fence import Fence
from outbox_operator.cluster.kinds import (
    DEPLOYMENT,
    LISTENER,
    POD_MONITOR,
    RELAY,
    SCALED_OBJECT,
    Kind,
    Manifest,
)
from outbox_operator.cluster.secret_watch import SecretWatch
from outbox_operator.cluster.store import Place, Store
from outbox_operator.cluster.watch_check import WatchCheck
from outbox_operator.cluster.watching import run_watches
from outbox_operator.database_process import DatabaseProcess
from outbox_operator.faults import Faults
from outbox_operator.metrics import Metrics
from outbox_operator.planning.findings import FAILED
from outbox_operator.reconciling.departures import Departures
from outbox_operator.reconciling.execution import Execution
from outbox_operator.reconciling.invalid import publish_invalid
from outbox_operator.reconciling.key import Key
from outbox_operator.reconciling.listeners import Listeners
from outbox_operator.reconciling.publication import publish
from outbox_operator.reconciling.relays import Relays
from outbox_operator.reconciling.work_queue import WorkQueue
from outbox_operator.reconciling.world import World
from outbox_operator.resources import OutboxRelay
from outbox_operator.resources.condition import ConditionType
from outbox_operator.settings import Settings

_FACILITIES_SECONDS = 60.0

_log = logging.getLogger("outbox.operator")


class Operator:
    """One leader's work, from `run` until it is cancelled."""

    def __init__(self, settings: Settings, connection: Connection, fence: Fence, metrics: Metrics) -> None:
        self._connection = connection
        cluster = Cluster(connection, on_call=metrics.count_api_call, fence=fence)
        queue: WorkQueue[Key] = WorkQueue(
            group_of=lambda key: key.namespace, most_of_a_group=settings.hands_of_a_namespace
        )
        faults = Faults(metrics.count_fault, passing=(NotLeaderError,))
        self.world = World(
            settings=settings,
            store=Store(),
            cluster=cluster,
            vhosts=Vhosts(
                on_change=self._on_vhost,
                on_call=metrics.count_broker_call,
                write_seconds=lambda: fence.left_seconds,
                drift_seconds=settings.drift_seconds,
                faults=faults,
                allowed=AllowedHosts.parse(settings.allowed_hosts),
            ),
            secrets=SecretWatch(cluster, self._on_secret, faults),
            events=Recorder(cluster, is_busy=lambda: queue.depth > 0),
            queue=queue,
            metrics=metrics,
            fence=fence,
            faults=faults,
            database_process=DatabaseProcess(),
        )
        execution = Execution(self.world)
        self._execution = execution
        departures = Departures(
            self.world.vhosts, self.world.queue, execution.has_pods, settings.user_grace_seconds
        )
        self._relays = Relays(self.world, execution, departures)
        self._listeners = Listeners(self.world, execution, departures)
        self._owners: dict[Place, Key] = {}
        self._identities: WeakKeyDictionary[Vhost, VhostIdentity] = WeakKeyDictionary()
        self._unread: set[Key] = set()
        """The resources that could not be read when they were last looked at."""
        self.watch_check = WatchCheck(cluster, self.world.store, settings.namespaces)

    async def run(self) -> None:
        """Watch and reconcile; what ends it is an error, or whoever cancels."""
        world = self.world
        world.metrics.watch_depth(lambda: world.queue.depth)
        world.store.subscribe(self._on_event)
        world.facilities = await self._facilities()
        # Before kopf stumbles over what is lacking, with lines of its own.
        await self.watch_check.wait_until_listed()
        with closing(world.queue):
            await self._run()

    async def _run(self) -> None:
        world = self.world
        async with world.database_process, world.secrets, asyncio.TaskGroup() as group:
            keep_running = world.faults.keep_running
            group.create_task(
                run_watches(world.store, self._connection, world.settings.namespaces, world.faults)
            )
            group.create_task(world.vhosts.run())
            group.create_task(keep_running("events", world.events.run))
            await self.watch_check.wait_until_synced()
            event(
                _log,
                logging.INFO,
                "watching",
                relays=len(world.store.relays),
                listeners=len(world.store.listeners),
            )
            group.create_task(keep_running("watch check", self.watch_check.run))
            group.create_task(keep_running("facilities", self._keep_facilities))
            for _ in range(world.settings.hands):
                group.create_task(world.queue.work(self._reconcile))

    async def _reconcile(self, key: Key) -> bool:
        """Look at a resource; whether all went well."""
        metrics, began = self.world.metrics, time.perf_counter()
        succeeded: bool | None = None
        with self.world.faults.contained("reconcile", str(key)):
            succeeded = await self._reconciled(key)
        if succeeded is None:
            with self.world.faults.contained("status", str(key)):
                await self._publish_failure(key)
        metrics.reconcile_seconds.labels(key.kind).observe(time.perf_counter() - began)
        metrics.reconciles.labels(key.kind, "success" if succeeded else "error").inc()
        return bool(succeeded)

    async def _reconciled(self, key: Key) -> bool:
        try:
            return await self._reconciler(key)
        except NotLeaderError:
            raise
        except ClusterError as error:
            event(_log, logging.WARNING, "not reconciled", resource=str(key), cause=str(error))
            return False

    async def _publish_failure(self, key: Key) -> None:
        """Replace conditions that may not be true any more."""
        store, place = self.world.store, (key.namespace, key.name)
        owner = store.relays.get(place) if key.kind == RELAY.kind else store.listeners.get(place)
        if owner is None:
            return
        try:
            await publish(self.world, owner, (FAILED,))
        except NotLeaderError:
            raise
        except ClusterError as error:
            event(_log, logging.WARNING, "status not written", resource=str(key), cause=str(error))

    async def _reconciler(self, key: Key) -> bool:
        kind = RELAY if key.kind == RELAY.kind else LISTENER
        if invalid := self.world.store.invalid.get((kind, key.namespace, key.name)):
            self._unread.add(key)
            await publish_invalid(self.world, kind, invalid)
            return True
        if key in self._unread:
            self._unread.discard(key)
            if kind is RELAY:
                self.world.call_listeners(key.namespace, key.name)
        return await (self._relays if kind is RELAY else self._listeners).reconcile(key)

    def _on_event(self, kind: Kind, namespace: str, name: str) -> None:
        """An object that is watched came, went or changed."""
        world = self.world
        if kind is DEPLOYMENT:
            self._on_deployment((namespace, name))
            return
        key = Key("OutboxRelay" if kind is RELAY else "OutboxListener", namespace, name)
        world.queue.add(key)
        if kind is RELAY:
            world.secrets.set_references(self._references(world.store.relays.values()))
            relay = world.store.relays.get((namespace, name))
            if relay is None or relay.metadata.deletion_timestamp is not None:
                world.call_listeners(namespace, name)
            return
        self._call_departing()
        if (namespace, name) not in world.store.listeners:
            self._call_waiting()

    def _on_deployment(self, place: Place) -> None:
        live = self.world.store.deployments.get(place)
        if live is None:
            self._execution.forget_deployment(*place)
            if owner := self._owners.pop(place, None):
                self.world.queue.add(owner)
            return
        if owner := _owner(live, place[0]):
            self._owners[place] = owner
            self.world.queue.add(owner)

    def _call_departing(self) -> None:
        """A listener changed or went: a relay that waits for that, or is kept in mind for it, may go."""
        for relay in self.world.relays_seen.values():
            place = (relay.metadata.namespace, relay.metadata.name)
            live = self.world.store.relays.get(place)
            if live is None or live.metadata.deletion_timestamp is not None:
                self.world.queue.add(Key("OutboxRelay", *place))

    def _call_waiting(self) -> None:
        """A listener went: its queue may be what another one waits for."""
        for listener in self.world.store.listeners.values():
            if any(
                condition.type == ConditionType.TOPOLOGY_READY and condition.reason == "QueueOwnedBy"
                for condition in listener.status.conditions
            ):
                self.world.queue.add(
                    Key("OutboxListener", listener.metadata.namespace, listener.metadata.name)
                )

    def _on_secret(self, namespace: str, name: str) -> None:
        for place, relay in self.world.store.relays.items():
            if (namespace, name) in self._references([relay]):
                self.world.queue.add(Key("OutboxRelay", *place))

    def _on_vhost(self, vhost: Vhost) -> None:
        """A virtual host is not as it was: whoever it is another to has to be looked at."""
        world = self.world
        is_renamed = self._identities.get(vhost) != vhost.identity
        self._identities[vhost] = vhost.identity
        for place, relay in world.store.relays.items():
            entry = world.entries.get(relay.metadata.path)
            if entry is None or entry.vhost is not vhost:
                continue
            if is_renamed:
                world.call_rivals(*place)
            is_problem = isinstance(vhost.state, BrokerProblem)
            if is_problem or self._relays.is_concerned(relay, entry):
                world.queue.add(Key("OutboxRelay", *place))
            for listener in world.store.listeners_of(*place):
                if is_problem or self._listeners.is_concerned(listener, entry):
                    world.queue.add(Key("OutboxListener", place[0], listener.metadata.name))

    def _references(self, relays: Iterable[OutboxRelay]) -> set[Place]:
        """The Secrets that relays name."""
        found: set[Place] = set()
        for relay in relays:
            database, broker = relay.spec.database, relay.spec.broker
            refs = (database.secret_ref, broker.secret_ref, database.ca_secret_ref, broker.ca_secret_ref)
            found |= {(relay.metadata.namespace, ref.name) for ref in refs if ref}
            if place := self.world.settings.administrator_place(broker.administrator_secret_ref):
                found.add(place)
        return found

    async def _keep_facilities(self) -> None:
        """Notice when KEDA or the Prometheus operator is installed, or goes."""
        while True:
            await asyncio.sleep(_FACILITIES_SECONDS)
            try:
                found = await self._facilities()
            except ClusterError as error:
                event(_log, logging.WARNING, "API groups not listed", cause=str(error))
                continue
            if found != self.world.facilities:
                self.world.facilities = found
                for place in self.world.store.relays:
                    self.world.queue.add(Key("OutboxRelay", *place))
                for place in self.world.store.listeners:
                    self.world.queue.add(Key("OutboxListener", *place))

    async def _facilities(self) -> Facilities:
        groups = await self.world.cluster.api_groups()
        return Facilities(
            pod_monitors=POD_MONITOR.group in groups,
            keda=SCALED_OBJECT.group in groups,
            network_policies=self.world.settings.network_policies,
        )


def _owner(deployment: Manifest, namespace: str) -> Key | None:
    for reference in deployment["metadata"].get("ownerReferences") or ():
        match reference:
            case {"kind": "OutboxRelay" | "OutboxListener" as kind, "name": str() as name}:
                return Key(kind, namespace, name)
    return None
