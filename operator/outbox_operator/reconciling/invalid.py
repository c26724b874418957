"""Telling of a resource that its type refuses: the API server took it under an older rule, or a newer one."""

from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from outbox_operator.cluster.errors import NotFoundError
from outbox_operator.cluster.events import Reference, record
from outbox_operator.cluster.kinds import Kind
from outbox_operator.cluster.store import Invalid
from outbox_operator.conditions import Finding, merge
from outbox_operator.planning.removal import FINALIZER
from outbox_operator.planning.status import turns
from outbox_operator.reconciling.finalizer import drop_finalizer
from outbox_operator.reconciling.world import World
from outbox_operator.resources.condition import Condition, ConditionStatus, ConditionType


async def publish_invalid(world: World, kind: Kind, invalid: Invalid) -> None:
    """Say in its status what is wrong; nothing else is done for it, but that it may be deleted."""
    metadata = invalid.metadata
    if metadata.deletion_timestamp is not None:
        if FINALIZER in metadata.finalizers:
            left = f"whatever it has on the broker was left, as it cannot be read: {invalid.message}"
            await record(world.cluster, Reference.to(kind, metadata), "Warning", "BrokerObjectsLeft", left)
        await drop_finalizer(world, kind, metadata)
        return
    old = _conditions(invalid.manifest)
    wrong = Finding(
        ConditionType.TOPOLOGY_READY, ConditionStatus.FALSE, "Invalid", f"{invalid.message}; correct it"
    )
    conditions = merge(old, [wrong], generation=metadata.generation, now=datetime.now(UTC))
    if conditions == old:
        return
    status = {
        **invalid.manifest.get("status", {}),
        "conditions": [condition.manifest() for condition in conditions],
        "observedGeneration": metadata.generation,
    }
    operation = {"op": "add", "path": "/status", "value": status}
    try:
        written = await world.cluster.patch_status(kind, metadata, [operation])
    except NotFoundError:
        return
    world.store.put(kind, written)
    for condition in turns(old, conditions):
        about = Reference.to(kind, metadata)
        await record(world.cluster, about, "Warning", condition.reason, condition.message)


def _conditions(manifest: dict[str, Any]) -> tuple[Condition, ...]:
    try:
        return tuple(map(Condition.model_validate, manifest.get("status", {}).get("conditions", ())))
    except ValidationError:
        # They are written anew.
        return ()
