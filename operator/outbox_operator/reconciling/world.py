"""All that a reconcile looks at and acts on, in one place."""

from dataclasses import dataclass, field

from outbox_operator.broker.access import BrokerAccess, VhostId
from outbox_operator.broker.snapshot import BrokerProblem, Snapshot
from outbox_operator.broker.vhosts import Vhost, Vhosts
from outbox_operator.children.family import Facilities
from outbox_operator.cluster.client import Cluster
from outbox_operator.cluster.events import Recorder
from outbox_operator.cluster.fence import Fence
from outbox_operator.cluster.kinds import RELAY
from outbox_operator.cluster.secret_watch import SecretWatch
from outbox_operator.cluster.store import Store
from outbox_operator.conditions import Finding
from outbox_operator.metrics import Metrics
from outbox_operator.planning.claims import Claim, Claims
from outbox_operator.reconciling.key import Key
from outbox_operator.reconciling.work_queue import WorkQueue
from outbox_operator.resources import OutboxListener, OutboxRelay
from outbox_operator.settings import Settings


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
    facilities: Facilities = field(default_factory=Facilities)
    """What the cluster has beside Kubernetes itself."""
    entries: dict[str, Entry] = field(default_factory=dict)
    """By the path of the relay."""
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

    def vhost_id_of(self, relay: OutboxRelay) -> VhostId | None:
        """Where its exchange is; None while nobody knows."""
        entry = self.entries.get(relay.metadata.path)
        if entry is None or isinstance(entry.access, Finding):
            return None
        return entry.access.vhost_id

    def claim_of(self, listener: OutboxListener) -> Claim | None:
        """What it asks for; None while nobody knows on which broker."""
        relay = self.relay_of(listener)
        vhost = self.vhost_id_of(relay) if relay else None
        return Claim(listener, vhost) if vhost else None

    def claims(self, claim: Claim) -> Claims:
        """This one, with what all others ask for that ask for one of its queues."""
        asking = (listener for queue in claim.names for listener in self.store.claimants(queue))
        found = {listener.metadata.path: self.claim_of(listener) for listener in asking}
        found[claim.listener.metadata.path] = claim
        return Claims(each for each in found.values() if each is not None)

    def relays_perhaps_at(self, vhost: VhostId, exchange: str) -> list[OutboxRelay]:
        """The relays that publish to an exchange, with those of which nobody knows now on which broker."""
        return [
            relay
            for relay in self.store.relays.values()
            if relay.spec.exchange == exchange and self.vhost_id_of(relay) in (vhost, None)
        ]

    def call_listeners(self, namespace: str, relay: str) -> None:
        """Have the listeners of a relay looked at."""
        for listener in self.store.listeners_of(namespace, relay):
            self.queue.add(Key("OutboxListener", namespace, listener.metadata.name))
