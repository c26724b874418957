"""What the operator reports of a resource, where we could not look ourselves. Pure."""

from dataclasses import replace
from datetime import datetime

from outbox.table import TableName
from outbox_cli.status.picture import QueueState, RelayState, ResourceState, TableState
from outbox_operator.resources import OutboxListener, OutboxRelay
from outbox_operator.resources.condition import ConditionStatus, ConditionType
from outbox_operator.subscriptions import queue_of


def relay_state(relay: OutboxRelay, table: TableState | None, now: datetime) -> RelayState:
    """What is known of a relay, with the operator's numbers where nobody could look."""
    status = relay.status
    since = status.oldest_pending_at
    oldest = (now - since).total_seconds() if since else None
    name = TableName.parse(relay.spec.database.table).sql
    counted = table or TableState(name, status.backlog, None, oldest, status.parked)
    if any(c.type == ConditionType.VACUUM_EFFECTIVE for c in status.conditions):
        # The operator has seen for how long, and says it.
        counted = replace(counted, horizon_holder=None)
    return RelayState(relay.spec.exchange, counted, _resource("OutboxRelay", relay, relay.spec.replicas))


def queue_state(listener: OutboxListener, live: QueueState | None) -> QueueState:
    """What is known of a listener, with the operator's numbers where nobody could look."""
    status, worker = listener.status, listener.spec.worker
    wanted = None if worker is None else status.replicas if worker.autoscaling else worker.replicas
    resource = _resource("OutboxListener", listener, wanted)
    least = worker and (worker.autoscaling.min if worker.autoscaling else worker.replicas)
    counted = live or QueueState(queue_of(listener), status.backlog, None, status.dead_letters)
    # A queue that the operator has not made yet is told by its conditions.
    is_missing = counted.is_missing and status.queue is not None
    return replace(counted, resource=resource, may_rest=least == 0, is_missing=is_missing)


def _resource(kind: str, each: OutboxRelay | OutboxListener, wanted: int | None) -> ResourceState:
    status, metadata = each.status, each.metadata
    ready = next((c for c in status.conditions if c.type == ConditionType.READY), None)
    problems = tuple(
        f"{c.reason}: {c.message}" if c.message else c.reason
        for c in status.conditions
        if c.status is ConditionStatus.FALSE and c.type not in (ConditionType.READY, ConditionType.PAUSED)
    )
    return ResourceState(
        kind,
        metadata.namespace,
        metadata.name,
        ready.status if ready else ConditionStatus.UNKNOWN,
        ready.reason if ready else "Pending",
        problems,
        is_seen=bool(status.conditions) and status.observed_generation >= metadata.generation,
        pods="" if wanted is None else f"{status.ready_replicas or 0}/{wanted}",
    )
