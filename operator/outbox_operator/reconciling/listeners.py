"""The reconcile of an OutboxListener: look, plan, do, tell."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from outbox.topology import dead_letter_queue
from outbox_operator.broker.access import BrokerAccess
from outbox_operator.broker.snapshot import BrokerProblem
from outbox_operator.metrics import is_settled
from outbox_operator.planning.calm import Calm, calm_after
from outbox_operator.planning.findings import PAUSED
from outbox_operator.planning.glimpse import Glimpse, Interest, glimpse, listener_interest
from outbox_operator.planning.listener_plan import ListenerView, plan
from outbox_operator.planning.listener_removal import DepartingListener, listener_removal
from outbox_operator.planning.plan import Plan
from outbox_operator.planning.pod_credentials import draw
from outbox_operator.planning.removal import FINALIZER
from outbox_operator.reconciling.arrivals import Arrivals
from outbox_operator.reconciling.departures import Departures
from outbox_operator.reconciling.execution import Execution
from outbox_operator.reconciling.finalizer import keep_finalizer
from outbox_operator.reconciling.key import Key
from outbox_operator.reconciling.outcome import Outcome
from outbox_operator.reconciling.publication import publish
from outbox_operator.reconciling.removing import Removing
from outbox_operator.reconciling.world import Entry, World
from outbox_operator.resources import OutboxListener, OutboxRelay
from outbox_operator.resources.condition import ConditionStatus, ConditionType
from outbox_operator.subscriptions import queue_of

_NO_BROKER = BrokerProblem("RelayMissing", "its OutboxRelay is not there")


class Listeners:
    """Reconciles listeners."""

    def __init__(self, world: World, execution: Execution, departures: Departures) -> None:
        self._world = world
        self._departures = departures
        self._execution = execution
        self._removing = Removing(world, execution)
        self._arrivals = Arrivals()
        self._seen: dict[str, tuple[Interest, Glimpse]] = {}
        self._calm: dict[str, Calm] = {}
        """Of those that are being deleted."""

    async def reconcile(self, key: Key) -> bool:
        """Whether all went well; else it is to be tried again."""
        world = self._world
        listener = world.store.listeners.get((key.namespace, key.name))
        if listener is None:
            self._arrivals.forget(key.path)
            self._seen.pop(key.path, None)
            self._calm.pop(key.path, None)
            self._execution.forget(key)
            self._removing.forget(key)
            await self._departures.is_gone(key)
            return True
        relay = world.relay_of(listener)
        entry = world.entries.get(relay.metadata.path) if relay else None
        if relay is not None and entry is None:
            # The relay's own reconcile comes first, and calls for its listeners then.
            return True
        if listener.metadata.deletion_timestamp is not None:
            await self._remove(key, listener, relay, entry)
            return True
        if listener.spec.paused:
            await publish(world, listener, (PAUSED,))
            return True
        if relay is None and (seconds := self._arrivals.patience_seconds(listener.metadata)):
            world.queue.add_after(key, seconds)
            return True
        await keep_finalizer(world, listener)
        return await self._settle(key, listener, relay, entry)

    def is_concerned(self, listener: OutboxListener, entry: Entry) -> bool:
        """Whether the broker is another to it than when it was last looked at."""
        seen, snapshot = self._seen.get(listener.metadata.path), entry.snapshot
        if seen is None or snapshot is None:
            return True
        interest, before = seen
        return glimpse(snapshot, interest) != before

    async def _settle(
        self, key: Key, listener: OutboxListener, relay: OutboxRelay | None, entry: Entry | None
    ) -> bool:
        world, vhost, claim = self._world, entry.vhost if entry else None, self._world.claim_of(listener)
        claims = world.claims(claim) if claim else None
        obstacle = claims.obstacle(claim) if claim and claims else None
        view = await self._look(listener, relay, entry, obstacle)
        wanted = plan(view)
        world.metrics.count_repairs(listener, wanted.actions)
        outcome = await self._execution.carry_out(listener, wanted, vhost)
        self._remember(listener, relay, entry, wanted)
        await self._departures.is_there(key, listener, entry if wanted.credentials else None)
        await publish(world, listener, outcome.findings, **self._fields(listener, entry, outcome))
        self._execution.look_again(key, outcome)
        if claim and claims and obstacle is None:
            self._call(rival for rival in claims.rivals(claim) if is_settled(rival))
        return not outcome.failed

    def _call(self, rivals: Iterable[OutboxListener]) -> None:
        """Have those looked at who got the same queue while nobody knew of this one's claim."""
        for rival in rivals:
            self._world.queue.add(Key("OutboxListener", rival.metadata.namespace, rival.metadata.name))

    async def _look(
        self,
        listener: OutboxListener,
        relay: OutboxRelay | None,
        entry: Entry | None,
        obstacle: tuple[str, OutboxListener] | None,
    ) -> ListenerView:
        return ListenerView(
            listener=listener,
            relay=relay,
            access=entry.access if entry and isinstance(entry.access, BrokerAccess) else None,
            broker=entry.broker if entry else _NO_BROKER,
            obstacle=obstacle,
            credentials=await self._execution.credentials_of(listener),
            chance=draw(),
            has_keda=self._world.facilities.keda,
            is_relay_invalid=self._world.is_relay_invalid(listener),
        )

    def _remember(
        self, listener: OutboxListener, relay: OutboxRelay | None, entry: Entry | None, done: Plan
    ) -> None:
        snapshot = entry.snapshot if entry else None
        if relay is None or snapshot is None:
            self._seen.pop(listener.metadata.path, None)
            return
        user = done.credentials.user if done.credentials else None
        interest = listener_interest(listener, relay.spec.exchange, user)
        self._seen[listener.metadata.path] = interest, glimpse(snapshot, interest)

    def _fields(self, listener: OutboxListener, entry: Entry | None, outcome: Outcome) -> dict[str, Any]:
        """What the status has beside conditions; what is not known now stays."""
        fields = outcome.pod_fields(listener)
        snapshot, queue = entry.snapshot if entry else None, queue_of(listener)
        if outcome.status_of(ConditionType.TOPOLOGY_READY) is not ConditionStatus.TRUE or snapshot is None:
            return fields
        letters = dead_letter_queue(queue)
        return {
            **fields,
            "queue": queue,
            "dead_letter_queue": letters,
            "backlog": snapshot.messages(queue),
            "dead_letters": snapshot.messages(letters),
        }

    async def _remove(
        self, key: Key, listener: OutboxListener, relay: OutboxRelay | None, entry: Entry | None
    ) -> None:
        if FINALIZER not in listener.metadata.finalizers:
            return
        vhost, now = entry.vhost if entry else None, datetime.now(UTC)
        if vhost is not None and key.path in self._calm:
            await self._removing.look(vhost)
        broker = entry.broker if entry else _NO_BROKER
        if relay is not None:
            before = self._calm.get(key.path, Calm())
            self._calm[key.path] = calm_after(before, listener, relay.spec.exchange, broker, now)
        claim = self._world.claim_of(listener)
        view = DepartingListener(
            listener=listener,
            relay=relay,
            broker=broker,
            is_owner=claim is None or self._world.claims(claim).obstacle(claim) is None,
            has_pods=await self._execution.has_pods(listener),
            calm=self._calm.get(key.path, Calm()),
        )
        step = listener_removal(view, now, self._removing.patience)
        await self._removing.carry_out(key, listener, step, vhost)
