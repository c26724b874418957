"""The reconcile of an OutboxRelay: look, plan, do, tell."""

import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Literal

from outbox_operator.administrators import not_allowed
from outbox_operator.allowed_hosts import AllowedHosts
from outbox_operator.broker.access import BrokerAccess
from outbox_operator.broker.identity import VhostIdentity
from outbox_operator.broker.removal_plan import unused_tiers
from outbox_operator.broker.snapshot import ObservedBinding
from outbox_operator.children.names import Owner
from outbox_operator.cluster.errors import ClusterError, NotLeaderError
from outbox_operator.cluster.kinds import LISTENER, RELAY
from outbox_operator.conditions import Finding
from outbox_operator.credentials import administrator_access, broker_access, database_access
from outbox_operator.database_access import DatabaseAccess
from outbox_operator.database_view import DatabaseView
from outbox_operator.planning.findings import PAUSED, false, host_not_allowed, tls_required
from outbox_operator.planning.glimpse import Glimpse, Interest, glimpse, relay_interest
from outbox_operator.planning.listener_plan import tiers_of
from outbox_operator.planning.marks import bindings_of_others
from outbox_operator.planning.plan import Plan
from outbox_operator.planning.pod_credentials import draw
from outbox_operator.planning.relay_plan import RelayView, plan
from outbox_operator.planning.relay_removal import (
    DepartingRelay,
    exchange_of_invalid,
    relay_released,
    relay_removal,
)
from outbox_operator.planning.removal import FINALIZER
from outbox_operator.planning.status import same_moment
from outbox_operator.reconciling.databases import Databases
from outbox_operator.reconciling.departures import Departures
from outbox_operator.reconciling.execution import Execution
from outbox_operator.reconciling.finalizer import keep_finalizer
from outbox_operator.reconciling.idle_tiers import IdleTiers
from outbox_operator.reconciling.key import Key
from outbox_operator.reconciling.moves import Moves
from outbox_operator.reconciling.outcome import Outcome
from outbox_operator.reconciling.publication import publish
from outbox_operator.reconciling.removing import Removing
from outbox_operator.reconciling.world import Entry, World
from outbox_operator.resources import OutboxRelay
from outbox_operator.resources.condition import ConditionType
from outbox_operator.service_hosts import host_seen_from_elsewhere

_SOON_SECONDS = 0.2
_FIRST_LOOKS_SECONDS = 60.0


class Relays:
    """Reconciles relays."""

    def __init__(self, world: World, execution: Execution, departures: Departures) -> None:
        self._world = world
        self._departures = departures
        self._execution = execution
        self._removing = Removing(world, execution)
        self._moves = Moves(world, execution)
        self._seen: dict[str, tuple[Interest, Glimpse]] = {}
        self._databases = Databases(world.database_process.look, world.settings.drift_seconds, world.faults)
        self._idle_tiers = IdleTiers(world.settings.tier_grace_seconds)
        self._allowed = AllowedHosts.parse(world.settings.allowed_hosts)
        self._began = time.monotonic()

    async def reconcile(self, key: Key) -> bool:
        """Whether all went well; else it is to be tried again."""
        world = self._world
        relay = world.store.relays.get((key.namespace, key.name))
        if relay is None:
            await self._forget(key)
            return True
        world.relays_seen[key.path] = relay
        if relay.metadata.deletion_timestamp is not None:
            await self._delete(key, relay)
            return True
        await self._enter(relay)
        entry = world.entries[key.path]
        if relay.spec.paused:
            await publish(world, relay, (PAUSED,))
            return True
        await keep_finalizer(world, relay)
        return await self._settle(key, relay, entry, await self._enter_database(relay))

    def is_concerned(self, relay: OutboxRelay, entry: Entry) -> bool:
        """Whether the broker is another to it than when it was last looked at."""
        seen, snapshot = self._seen.get(relay.metadata.path), entry.snapshot
        if seen is None or snapshot is None:
            return True
        interest, before = seen
        return glimpse(snapshot, interest) != before

    async def _enter(self, relay: OutboxRelay) -> None:
        """Find out how its broker is entered; its listeners hear of that."""
        world, metadata = self._world, relay.metadata
        access = await self._broker_access(relay)
        if isinstance(access, BrokerAccess):
            access = await self._refused("broker", access, metadata.namespace) or access
        if isinstance(access, Finding):
            await world.vhosts.release(metadata.path)
            entry = Entry(access, None)
        else:
            entry = Entry(access, await world.vhosts.use(metadata.path, access))
        before = world.entries.get(metadata.path)
        if before != entry:
            former = before.access if before else None
            if isinstance(former, BrokerAccess) and not former.is_secret_from_pods:
                world.former_accesses[metadata.namespace, former.vhost_id] = former
            world.entries[metadata.path] = entry
            world.call_listeners(relay.metadata.namespace, relay.metadata.name)
            world.call_rivals(relay.metadata.namespace, relay.metadata.name)

    async def _broker_access(self, relay: OutboxRelay) -> BrokerAccess | Finding:
        broker, namespace, read = relay.spec.broker, relay.metadata.namespace, self._world.secrets.read
        if broker.secret_ref is not None:
            secret = await read(namespace, broker.secret_ref.name)
            ca = await read(namespace, broker.ca_secret_ref.name) if broker.ca_secret_ref else None
            return broker_access(broker, secret, ca, namespace=namespace)
        reference, vhost = broker.administrator_secret_ref, broker.vhost or ""
        place = self._world.settings.administrator_place(reference)
        if place is None:
            return not_allowed(reference.name if reference else "", namespace, vhost)
        home, name = place
        return administrator_access(name, await read(home, name), home=home, namespace=namespace, vhost=vhost)

    async def _enter_database(self, relay: OutboxRelay) -> DatabaseAccess | Finding:
        """Find out how its database is entered."""
        database, namespace, read = relay.spec.database, relay.metadata.namespace, self._world.secrets.read
        secret = await read(namespace, database.secret_ref.name)
        ca = await read(namespace, database.ca_secret_ref.name) if database.ca_secret_ref else None
        access = database_access(database, secret, ca, namespace=namespace)
        if isinstance(access, DatabaseAccess):
            return await self._refused("database", access, namespace) or access
        return access

    async def _refused(
        self, part: Literal["broker", "database"], access: BrokerAccess | DatabaseAccess, namespace: str
    ) -> Finding | None:
        """What keeps the operator from entering, by the settings of whoever installed it."""
        if self._world.settings.require_tls and not access.has_tls:
            return tls_required(part)
        # By its name as the operator sees it.
        seen = [host_seen_from_elsewhere(host, namespace) for host in access.hosts]
        host = await self._allowed.refused(seen)
        return host_not_allowed(host) if host else None

    async def _settle(
        self, key: Key, relay: OutboxRelay, entry: Entry, entered: DatabaseAccess | Finding
    ) -> bool:
        world = self._world
        database = None
        if isinstance(entered, DatabaseAccess):
            database = await self._databases.look(relay, entered)
        tiers = await self._tiers(relay, entry)
        view = RelayView(
            relay=relay,
            access=entry.access,
            entered=entered,
            broker=entry.broker,
            database=database,
            idle_tiers=tiers,
            credentials=await self._execution.credentials_of(relay),
            image=world.settings.relay_image,
            chance=draw(),
            domain=world.domain,
        )
        wanted = plan(view)
        world.metrics.count_repairs(relay, wanted.actions)
        is_known = self._moves.is_known(relay, entry)
        outcome = await self._execution.carry_out(relay, wanted, entry.vhost)
        self._remember(relay, entry, wanted)
        await self._departures.is_there(key, relay, entry)
        left = await self._moves.follow(key, relay, entry, outcome, is_known=is_known)
        fields = _fields(relay, database, outcome) | left.fields
        await publish(world, relay, outcome.findings, **fields)
        world.queue.add_after(key, self._databases.pause_seconds(key.path))
        self._execution.look_again(key, outcome)
        return not outcome.failed

    async def _tiers(self, relay: OutboxRelay, entry: Entry) -> tuple[str, ...]:
        """The tiers of its exchange that nobody has needed for a while, by a look at the broker of now."""
        if entry.vhost is None or not self._due_tiers(relay, entry):
            return ()
        # A worker that declares its own may have bound one since the last look.
        await entry.vhost.look()
        return self._due_tiers(relay, entry)

    def _due_tiers(self, relay: OutboxRelay, entry: Entry) -> tuple[str, ...]:
        world, exchange = self._world, relay.spec.exchange
        vhost, snapshot = world.vhost_of(relay.metadata.path), entry.snapshot
        if vhost is None or snapshot is None or world.store.invalid:
            # A resource that cannot be read may need any of them.
            return ()
        listeners = world.listeners_perhaps_at(vhost, exchange, relay.metadata.namespace)
        if any(listener.spec.paused for listener in listeners):
            # Consumers of a paused listener may still use the delays that it had before an edit.
            return ()
        needed = self._needed_tiers(vhost, relay)
        unused = unused_tiers(exchange, needed, snapshot, world.domain.installation)
        return self._idle_tiers.due(vhost.address, exchange, unused)

    def _needed_tiers(self, vhost: VhostIdentity, relay: OutboxRelay) -> frozenset[str]:
        world, exchange = self._world, relay.spec.exchange
        return frozenset(
            tier
            for listener in world.listeners_perhaps_at(vhost, exchange, relay.metadata.namespace)
            for tier in tiers_of(listener, exchange, world.live_delays(listener))
        )

    def _remember(self, relay: OutboxRelay, entry: Entry, done: Plan) -> None:
        snapshot = entry.snapshot
        if snapshot is None:
            self._seen.pop(relay.metadata.path, None)
            return
        user = done.credentials.user if done.credentials else None
        interest = relay_interest(relay, user, entry.login)
        self._seen[relay.metadata.path] = interest, glimpse(snapshot, interest)

    async def _delete(self, key: Key, relay: OutboxRelay) -> None:
        """Remove what its policy asks for; nothing that fails here keeps it from being deleted."""
        if _is_leaving(relay) and (end := relay_released(relay)):
            await self._removing.carry_out(key, relay, end, None)
            return
        world, path = self._world, relay.metadata.path
        try:
            await self._enter(relay)
        except ClusterError as error:
            if isinstance(error, NotLeaderError):
                raise
            unread = false(ConditionType.CREDENTIALS_VALID, "SecretUnreadable", str(error))
            if world.entries.setdefault(path, Entry(unread, None)).access == unread:
                world.call_listeners(relay.metadata.namespace, relay.metadata.name)
        if _is_leaving(relay):
            await self._remove(key, relay, world.entries[path])

    async def _remove(self, key: Key, relay: OutboxRelay, entry: Entry) -> None:
        world = self._world
        vhost, exchange = world.vhost_of(key.path), relay.spec.exchange
        others = [
            other
            for other in world.store.relays.values()
            if other.spec.exchange == exchange and other.metadata.path != key.path
        ]
        is_early = time.monotonic() - self._began < _FIRST_LOOKS_SECONDS
        if is_early and any(other.metadata.path not in world.entries for other in others):
            # Nobody has looked at them yet since the start, and one may have this exchange too.
            world.queue.add_after(key, _SOON_SECONDS)
            return

        def is_at(path: str) -> bool | None:
            return world.is_at(path, vhost, key.namespace) if vhost else None

        def is_unclear(path: str) -> bool:
            where = world.vhost_of(path)
            is_perhaps_here = vhost is not None and (where is None or where.address == vhost.address)
            return is_perhaps_here and is_at(path) is None

        same = [other for other in others if is_at(other.metadata.path)]
        invalid = self._invalid_relays(exchange)
        staying = [*_paths(other for other in same if not _is_leaving(other))]
        staying += [path for path in invalid if is_at(path)]
        unclear = [path for path in (*_paths(others), *invalid) if is_unclear(path)]
        mine = world.store.listeners_of(key.namespace, key.name)
        if entry.vhost is not None:
            await self._removing.look(entry.vhost)
        view = DepartingRelay(
            relay=relay,
            broker=entry.broker,
            others=tuple(staying),
            heirs=_paths(other for other in same if _is_leaving(other) and other.metadata.path > key.path),
            perhaps=tuple(unclear),
            leaving=_paths(each for each in mine if _is_leaving(each)),
            needed_tiers=self._needed_tiers(vhost, relay) if vhost else frozenset(),
            shared_with=self._bindings_of_others(relay, entry),
            installation=world.domain.installation,
            elsewhere=entry.elsewhere(relay),
        )
        step = relay_removal(view, datetime.now(UTC), self._removing.patience)
        await self._removing.carry_out(key, relay, step, entry.vhost)

    def _invalid_relays(self, exchange: str) -> list[str]:
        """The paths of relays that cannot be read and may publish to an exchange."""
        return [
            invalid.metadata.path
            for (kind, _, _), invalid in self._world.store.invalid.items()
            if kind is RELAY and exchange_of_invalid(invalid.manifest) in (exchange, None)
        ]

    def _bindings_of_others(self, relay: OutboxRelay, entry: Entry) -> tuple[ObservedBinding, ...]:
        """What others have bound to its exchanges: another operator, or listeners of another relay."""
        if entry.snapshot is None:
            return ()
        world, (namespace, name) = self._world, (relay.metadata.namespace, relay.metadata.name)
        invalid = {
            each.metadata.path for (kind, _, _), each in world.store.invalid.items() if kind is LISTENER
        }
        mine = {each.metadata.path for each in world.store.listeners_of(namespace, name)}
        listeners = {each.metadata.path for each in world.store.listeners.values()} - mine
        return bindings_of_others(relay.spec.exchange, entry.snapshot, world.domain, listeners | invalid)

    async def _forget(self, key: Key) -> None:
        self._seen.pop(key.path, None)
        self._databases.forget(key.path)
        self._execution.forget(key)
        self._removing.forget(key)
        await self._moves.forget(key)
        await self._departures.is_gone(key)
        listeners = self._world.store.listeners_of(key.namespace, key.name)
        if any(FINALIZER in listener.metadata.finalizers for listener in listeners):
            # Their queues are to go with them, and this is the only way to the broker.
            return
        self._world.relays_seen.pop(key.path, None)
        await self._world.vhosts.release(key.path)
        if self._world.entries.pop(key.path, None) is not None:
            self._world.call_listeners(key.namespace, key.name)


def _paths(owners: Iterable[Owner]) -> tuple[str, ...]:
    return tuple(sorted(owner.metadata.path for owner in owners))


def _is_leaving(owner: Owner) -> bool:
    """Whether it is being deleted, and has something to remove."""
    return owner.metadata.deletion_timestamp is not None and FINALIZER in owner.metadata.finalizers


def _fields(relay: OutboxRelay, database: DatabaseView | None, outcome: Outcome) -> dict[str, Any]:
    """What the status has beside conditions; what is not known now stays."""
    fields = outcome.pod_fields(relay)
    if outcome.has_topology:
        fields["exchange"] = relay.spec.exchange
    if database is None or database.backlog is None:
        return fields
    oldest = database.oldest_pending_at
    return {
        **fields,
        "backlog": database.backlog,
        "oldest_pending_at": same_moment(relay.status.oldest_pending_at, oldest),
        "parked": database.parked,
    }
