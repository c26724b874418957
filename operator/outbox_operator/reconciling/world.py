"""All that a reconcile looks at and acts on, in one place."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta

from outbox_operator.broker.access import BrokerAccess, VhostId
from outbox_operator.broker.identity import VhostIdentity
from outbox_operator.broker.snapshot import BrokerProblem, Snapshot
from outbox_operator.broker.vhosts import Vhost, Vhosts
from outbox_operator.children.family import Facilities
from outbox_operator.children.names import Owner, child_name, is_child
from outbox_operator.children.notes import live_delays
from outbox_operator.cluster.client import Cluster
from outbox_operator.cluster.events import Recorder
from outbox_operator.cluster.fence import Fence
from outbox_operator.cluster.kinds import LISTENER, RELAY
from outbox_operator.cluster.secret_watch import SecretWatch
from outbox_operator.cluster.store import Store
from outbox_operator.conditions import Finding
from outbox_operator.database_process import DatabaseProcess
from outbox_operator.faults import Faults
from outbox_operator.metrics import Metrics
from outbox_operator.neighbours import is_neighbour
from outbox_operator.planning.claims import Claim, Ownership, ownership
from outbox_operator.planning.marks import Domain, Marks
from outbox_operator.planning.moves import elsewhere, has_left, place_of
from outbox_operator.reconciling.key import Key
from outbox_operator.reconciling.work_queue import WorkQueue
from outbox_operator.resources import OutboxListener, OutboxRelay
from outbox_operator.resources.virtual_host import VirtualHost
from outbox_operator.settings import Settings
from outbox_operator.subscriptions import queues_of


@dataclass(frozen=True, slots=True)
class Entry:
    """How the broker of a relay is entered, as its last reconcile found it."""

    access: BrokerAccess | Finding
    """The credentials, or what is wrong with them."""
    vhost: Vhost | None
    """The virtual host; None where the credentials cannot be read."""

    @property
    def broker(self) -> Snapshot | BrokerProblem:
        """The virtual host as it was last seen, or why it was not."""
        if isinstance(self.access, Finding):
            return BrokerProblem(self.access.reason, self.access.message)
        state = self.vhost.state if self.vhost else None
        return state or BrokerProblem("Pending", "the broker has not been looked at yet")

    def elsewhere(self, owner: Owner) -> VirtualHost | None:
        """The other virtual host that the objects of a resource are in; None if they may be in this one."""
        if not isinstance(self.access, BrokerAccess):
            return None
        return elsewhere(owner, place_of(self.access), self.broker)

    @property
    def login(self) -> str | None:
        """The user as whom the operator acts there."""
        return self.access.username if isinstance(self.access, BrokerAccess) else None

    @property
    def snapshot(self) -> Snapshot | None:
        """The virtual host as it was last seen, where it was."""
        return found if isinstance(found := self.broker, Snapshot) else None


@dataclass(slots=True)
class World:
    """Everything, shared by all reconciles."""

    settings: Settings
    store: Store
    cluster: Cluster
    vhosts: Vhosts
    secrets: SecretWatch
    events: Recorder
    queue: WorkQueue[Key]
    metrics: Metrics
    fence: Fence
    faults: Faults
    database_process: DatabaseProcess
    facilities: Facilities = field(default_factory=Facilities)
    """What the cluster has beside Kubernetes itself."""
    entries: dict[str, Entry] = field(default_factory=dict)
    """By the path of the relay."""
    former_accesses: dict[tuple[str, VhostId], BrokerAccess] = field(default_factory=dict)
    """How virtual hosts were entered that relays of a namespace have left since the operator started; not by
    an administrator, who is used for what is granted now."""
    relays_seen: dict[str, OutboxRelay] = field(default_factory=dict)
    """Every relay that has an entry, by path, as it was last looked at: it may be gone."""

    def relay_of(self, listener: OutboxListener) -> OutboxRelay | None:
        """Its relay; of a listener that is being deleted, also one that is gone."""
        place = (listener.metadata.namespace, listener.spec.relay_ref.name)
        if listener.metadata.deletion_timestamp is None:
            return self.store.relays.get(place)
        return self.store.relays.get(place) or self.relays_seen.get("/".join(place))

    def is_relay_invalid(self, listener: OutboxListener) -> bool:
        """Whether the relay that it names is there, and cannot be read."""
        return (RELAY, listener.metadata.namespace, listener.spec.relay_ref.name) in self.store.invalid

    @property
    def domain(self) -> Domain:
        """What this operator manages."""
        return Domain(self.settings.installation, self.settings.namespaces)

    def vhost_of(self, relay: str) -> VhostIdentity | None:
        """Where the exchange of the relay with this path is; None while that is not known."""
        entry = self.entries.get(relay)
        if entry is None or isinstance(entry.access, Finding):
            return None
        return entry.vhost.identity if entry.vhost else VhostIdentity(entry.access.vhost_id)

    def live_delays(self, listener: OutboxListener) -> tuple[timedelta, ...]:
        """The retry delays that its pods use now, whatever its spec says."""
        live = self.store.deployments.get((listener.metadata.namespace, child_name(listener)))
        return live_delays(live) if live and is_child(live, listener) else ()

    def claim_of(self, listener: OutboxListener) -> Claim:
        """What it asks for."""
        relay = self.relay_of(listener)
        if relay is None:
            return Claim.of(listener, None)
        entry = self.entries.get(relay.metadata.path)
        seen = entry.snapshot if entry else None
        is_marked = seen is not None and Marks.on(queues_of(listener), seen, self.domain).has(
            listener.metadata.path
        )
        return Claim.of(
            listener,
            self.vhost_of(relay.metadata.path),
            is_marked=is_marked,
            is_entered=self.is_entered(relay.metadata.path),
        )

    def ownership_of(self, listener: OutboxListener, snapshot: Snapshot) -> Ownership:
        """Who has its queues."""
        claim = self.claim_of(listener)
        asking = {each.metadata.path: each for queue in claim.names for each in self.store.claimants(queue)}
        invalid = (
            Claim.of_invalid(each.metadata, each.manifest)
            for (kind, _, _), each in self.store.invalid.items()
            if kind is LISTENER
        )
        return ownership(claim, [*map(self.claim_of, asking.values()), *invalid], snapshot, self.domain)

    def is_entered(self, relay: str) -> bool:
        """Whether the virtual host of a relay, given by its path, has ever let it in."""
        entry = self.entries.get(relay)
        return entry is not None and entry.vhost is not None and entry.vhost.was_entered

    def listeners_perhaps_at(
        self, vhost: VhostIdentity, exchange: str, asker: str
    ) -> Iterator[OutboxListener]:
        """The listeners of an exchange, with those of which nobody knows now on which broker.

        Pods of a listener work on when its relay is deleted, and until they have followed it elsewhere.
        `asker` is the namespace of the relay that wants to know.
        """
        for listener in self.store.listeners.values():
            if self._may_retry_at(listener, vhost, exchange, asker):
                yield listener

    def _may_retry_at(
        self, listener: OutboxListener, vhost: VhostIdentity, exchange: str, asker: str
    ) -> bool:
        """Whether pods of a listener may have retries on their way through the tiers of this exchange."""
        name, relay = vhost.address.vhost, self.relay_of(listener)
        if relay is None:
            return not is_neighbour(listener.metadata.path, asker) or has_left(listener, None, name)
        if relay.spec.exchange != exchange:
            return False
        if self.is_at(relay.metadata.path, vhost, asker) is not False:
            return True
        entry = self.entries.get(relay.metadata.path)
        access = entry.access if entry else None
        here = place_of(access) if isinstance(access, BrokerAccess) else None
        return has_left(listener, here, name)

    def is_at(self, relay: str, vhost: VhostIdentity, asker: str) -> bool | None:
        """Whether a relay, given by its path, uses this virtual host; None if that is not known.

        Of another namespace than `asker`, only what a broker has confirmed counts: anybody can name its
        address.
        """
        where = self.vhost_of(relay)
        if is_neighbour(relay, asker) and not self.is_entered(relay):
            return None if self._recorded_place(relay) == vhost.address else False
        return vhost.is_same(where) if where else None

    def _recorded_place(self, relay: str) -> VhostId | None:
        """Where the exchange of a relay was last made, by its status."""
        namespace, _, name = relay.partition("/")
        if known := self.store.relays.get((namespace, name)):
            last = known.status.virtual_host
            return VhostId(last.management_url, last.name) if last else None
        invalid = self.store.invalid.get((RELAY, namespace, name))
        match invalid.manifest if invalid else None:
            case {"status": {"virtualHost": {"managementUrl": str() as url, "name": str() as vhost}}}:
                return VhostId(url, vhost)
            case _:
                return None

    def call_listeners(self, namespace: str, relay: str) -> None:
        """Have the listeners of a relay looked at."""
        for listener in self.store.listeners_of(namespace, relay):
            self.queue.add(Key("OutboxListener", namespace, listener.metadata.name))

    def call_rivals(self, namespace: str, relay: str) -> None:
        """Have those looked at who ask for a queue that a listener of a relay asks for too."""
        for listener in self.store.listeners_of(namespace, relay):
            for queue in queues_of(listener):
                for other in self.store.claimants(queue):
                    if other is not listener:
                        self.queue.add(Key.of(other))
