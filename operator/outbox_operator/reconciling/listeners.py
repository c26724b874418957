"""The reconcile of an OutboxListener: look, plan, do, tell."""

import logging
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from outbox.topology import dead_letter_queue
from outbox_core.logs import event
from outbox_operator.broker.access import BrokerAccess
from outbox_operator.broker.snapshot import BrokerProblem
from outbox_operator.neighbours import is_neighbour
from outbox_operator.planning.calm import Calm, calm_after
from outbox_operator.planning.claims import Ownership
from outbox_operator.planning.findings import PAUSED
from outbox_operator.planning.glimpse import Glimpse, Interest, glimpse, listener_interest
from outbox_operator.planning.listener_plan import ListenerView, plan
from outbox_operator.planning.listener_removal import DepartingListener, listener_released, listener_removal
from outbox_operator.planning.plan import Plan
from outbox_operator.planning.pod_credentials import draw
from outbox_operator.planning.removal import FINALIZER
from outbox_operator.reconciling.arrivals import Arrivals
from outbox_operator.reconciling.departures import Departures
from outbox_operator.reconciling.execution import Execution
from outbox_operator.reconciling.finalizer import keep_finalizer
from outbox_operator.reconciling.key import Key
from outbox_operator.reconciling.moves import Moves
from outbox_operator.reconciling.outcome import Outcome
from outbox_operator.reconciling.publication import publish
from outbox_operator.reconciling.removing import Removing
from outbox_operator.reconciling.world import Entry, World
from outbox_operator.resources import OutboxListener, OutboxRelay
from outbox_operator.subscriptions import queue_of

_log = logging.getLogger("outbox.operator")

_NO_BROKER = BrokerProblem("RelayMissing", "its OutboxRelay is not there, or cannot be read")


_NO_QUEUE: dict[str, Any] = {
    "queue": None,
    "dead_letter_queue": None,
    "backlog": None,
    "dead_letters": None,
}
"""What the status says of a listener whose queue another one has."""


class Listeners:
    """Reconciles listeners."""

    def __init__(self, world: World, execution: Execution, departures: Departures) -> None:
        self._world = world
        self._departures = departures
        self._execution = execution
        self._removing = Removing(world, execution)
        self._moves = Moves(world, execution)
        self._arrivals = Arrivals()
        self._seen: dict[str, tuple[Interest, Glimpse]] = {}
        self._calm: dict[str, Calm] = {}
        """Of those that are being deleted."""

    async def reconcile(self, key: Key) -> bool:
        """Whether all went well; else it is to be tried again."""
        world = self._world
        listener = world.store.listeners.get((key.namespace, key.name))
        if listener is None:
            await self._forget(key)
            return True
        if _is_leaving(listener) and (end := listener_released(listener)):
            await self._removing.carry_out(key, listener, end, None)
            return True
        relay = world.relay_of(listener)
        entry = world.entries.get(relay.metadata.path) if relay else None
        if relay is not None and entry is None:
            # The relay's own reconcile comes first, and calls for its listeners then.
            return True
        if listener.metadata.deletion_timestamp is not None:
            await self._remove(key, listener, relay, entry)
            return True
        return await self._keep(key, listener, relay, entry)

    def is_concerned(self, listener: OutboxListener, entry: Entry) -> bool:
        """Whether the broker is another to it than when it was last looked at."""
        seen, snapshot = self._seen.get(listener.metadata.path), entry.snapshot
        if seen is None or snapshot is None:
            return True
        interest, before = seen
        return glimpse(snapshot, interest) != before

    async def _keep(
        self, key: Key, listener: OutboxListener, relay: OutboxRelay | None, entry: Entry | None
    ) -> bool:
        """Reconcile one that is not being deleted."""
        world = self._world
        if listener.spec.paused:
            await publish(world, listener, (PAUSED,))
            return True
        if relay is None and (seconds := self._arrivals.patience_seconds(listener.metadata)):
            world.queue.add_after(key, seconds)
            return True
        await keep_finalizer(world, listener)
        return await self._settle(key, listener, relay, entry)

    async def _forget(self, key: Key) -> None:
        self._arrivals.forget(key.path)
        self._seen.pop(key.path, None)
        self._calm.pop(key.path, None)
        self._execution.forget(key)
        self._removing.forget(key)
        await self._moves.forget(key)
        await self._departures.is_gone(key)

    async def _settle(
        self, key: Key, listener: OutboxListener, relay: OutboxRelay | None, entry: Entry | None
    ) -> bool:
        world, vhost = self._world, entry.vhost if entry else None
        owning = await self._verified_ownership(listener, entry)
        view = await self._look(listener, relay, entry, owning)
        wanted = plan(view)
        world.metrics.count_repairs(listener, wanted.actions)
        is_known = self._moves.is_known(listener, entry)
        outcome = await self._execution.carry_out(listener, wanted, vhost)
        self._remember(listener, relay, entry, wanted)
        await self._departures.is_there(key, listener, entry if wanted.credentials else None)
        left = await self._moves.follow(key, listener, entry, outcome, is_known=is_known)
        fields = _NO_QUEUE if wanted.loses_queue else {}
        fields = {**fields, **self._fields(listener, entry, outcome), **left.fields}
        await publish(world, listener, (*outcome.findings, *left.findings), **fields)
        self._execution.look_again(key, outcome)
        if (found := owning.obstacle) and is_neighbour(found.owner, key.namespace):
            # Its status does not say whose it is, and whoever runs the operator has to know.
            event(_log, logging.INFO, "queue is of another namespace", resource=str(key), owner=found.owner)
        if owning.obstacle is None:
            # Those that wait learn that the queue is taken, and perhaps that it is not the one they wait for.
            self._call(owning.asking if wanted.actions else owning.rivals)
        elif wanted.actions:
            self._call([owning.obstacle.owner])
        return not outcome.failed

    async def _verified_ownership(self, listener: OutboxListener, entry: Entry | None) -> Ownership:
        """Who has its queues; one that others ask for too is not taken by what was seen some time ago."""
        owning = self._ownership(listener, entry)
        is_taken = owning.obstacle is None and not owning.marks.has(listener.metadata.path)
        if not is_taken or not owning.asking or entry is None or entry.vhost is None:
            return owning
        await self._removing.look(entry.vhost)
        return self._ownership(listener, entry)

    def _ownership(self, listener: OutboxListener, entry: Entry | None) -> Ownership:
        snapshot = entry.snapshot if entry else None
        return self._world.ownership_of(listener, snapshot) if snapshot else Ownership()

    def _call(self, paths: Iterable[str]) -> None:
        """Have listeners looked at that have bound the same queue, or that it is left to."""
        for path in paths:
            self._world.queue.add(Key("OutboxListener", *path.split("/", 1)))

    async def _look(
        self,
        listener: OutboxListener,
        relay: OutboxRelay | None,
        entry: Entry | None,
        owning: Ownership,
    ) -> ListenerView:
        return ListenerView(
            listener=listener,
            relay=relay,
            access=entry.access if entry and isinstance(entry.access, BrokerAccess) else None,
            broker=entry.broker if entry else _NO_BROKER,
            obstacle=owning.obstacle,
            credentials=await self._execution.credentials_of(listener),
            chance=draw(),
            has_keda=self._world.facilities.keda,
            is_relay_invalid=self._world.is_relay_invalid(listener),
            live_delays=self._world.live_delays(listener),
            domain=self._world.domain,
            stale=owning.stale,
        )

    def _remember(
        self, listener: OutboxListener, relay: OutboxRelay | None, entry: Entry | None, done: Plan
    ) -> None:
        snapshot = entry.snapshot if entry else None
        if relay is None or entry is None or snapshot is None:
            self._seen.pop(listener.metadata.path, None)
            return
        user = done.credentials.user if done.credentials else None
        live_delays = self._world.live_delays(listener)
        interest = listener_interest(listener, relay.spec.exchange, user, live_delays, login=entry.login)
        self._seen[listener.metadata.path] = interest, glimpse(snapshot, interest)

    def _fields(self, listener: OutboxListener, entry: Entry | None, outcome: Outcome) -> dict[str, Any]:
        """What the status has beside conditions; what is not known now stays."""
        fields = outcome.pod_fields(listener)
        snapshot, queue = entry.snapshot if entry else None, queue_of(listener)
        if not outcome.has_topology or snapshot is None:
            return fields
        letters = dead_letter_queue(queue)
        fields |= {"queue": queue, "dead_letter_queue": letters}
        for field, name in (("backlog", queue), ("dead_letters", letters)):
            if snapshot.is_counted(name):
                fields[field] = snapshot.messages(name)
        return fields

    async def _remove(
        self, key: Key, listener: OutboxListener, relay: OutboxRelay | None, entry: Entry | None
    ) -> None:
        if not _is_leaving(listener):
            return
        vhost, now = entry.vhost if entry else None, datetime.now(UTC)
        if vhost is not None:
            # Whoever else has marked the queue meanwhile, perhaps by another address, has to be seen.
            await self._removing.look(vhost)
        broker = entry.broker if entry else _NO_BROKER
        has_pods = await self._execution.has_workload(listener)
        if relay is not None:
            before = self._calm.get(key.path, Calm())
            delays = tuple(dict.fromkeys((*before.delays, *self._world.live_delays(listener))))
            self._calm[key.path] = calm_after(
                replace(before, delays=delays),
                listener,
                relay.spec.exchange,
                broker,
                has_pods=has_pods,
                now=now,
                installation=self._world.domain.installation,
            )
        view = DepartingListener(
            listener=listener,
            relay=relay,
            broker=broker,
            owning=self._ownership(listener, entry),
            has_pods=has_pods,
            calm=self._calm.get(key.path, Calm()),
            is_relay_invalid=self._world.is_relay_invalid(listener),
            elsewhere=entry.elsewhere(listener) if entry else None,
        )
        step = listener_removal(view, now, self._removing.patience)
        await self._removing.carry_out(key, listener, step, vhost)


def _is_leaving(listener: OutboxListener) -> bool:
    """Whether it is being deleted, and has something to remove."""
    metadata = listener.metadata
    return metadata.deletion_timestamp is not None and FINALIZER in metadata.finalizers
