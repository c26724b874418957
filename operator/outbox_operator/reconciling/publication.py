"""Telling people: the status of a resource where it changed, and an Event for each turn that it took."""

from datetime import UTC, datetime
from typing import Any

from outbox_operator.children.names import Owner
from outbox_operator.cluster.errors import NotFoundError
from outbox_operator.cluster.events import EventType, Reference, record
from outbox_operator.cluster.kinds import LISTENER, RELAY, Kind
from outbox_operator.conditions import Finding
from outbox_operator.planning.status import next_status, status_patch, turns
from outbox_operator.reconciling.world import World
from outbox_operator.resources import OutboxRelay
from outbox_operator.resources.condition import Condition, ConditionStatus


async def publish(world: World, owner: Owner, findings: tuple[Finding, ...], **fields: Any) -> None:
    """Write what was found, as far as it is new; a field that is not given stays as it was.

    Of a resource that is gone by now, or replaced by another of its name, nothing is written.
    """
    new = next_status(owner, findings, datetime.now(UTC), **fields)
    patch = status_patch(owner.status, new)
    if not patch:
        return
    metadata = owner.metadata
    kind = kind_of(owner)
    try:
        written = await world.cluster.patch_status(kind, metadata, patch)
    except NotFoundError:
        return
    world.store.put(kind, written)
    for condition in turns(owner.status.conditions, new.conditions):
        world.events.add(Reference.to(kind, metadata), _type(condition), condition.reason, _words(condition))


async def tell(world: World, owner: Owner, type_: EventType, reason: str, message: str) -> None:
    """Write an Event about a resource."""
    await record(world.cluster, Reference.to(kind_of(owner), owner.metadata), type_, reason, message)


def kind_of(owner: Owner) -> Kind:
    return RELAY if isinstance(owner, OutboxRelay) else LISTENER


def _type(condition: Condition) -> EventType:
    is_wrong = condition.status == ConditionStatus.FALSE and condition.reason != "Progressing"
    return "Warning" if is_wrong else "Normal"


def _words(condition: Condition) -> str:
    return condition.message or f"{condition.type} is {condition.status}"
