"""The next status of a resource, what of it has to be written, and which turns it took. Pure."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from outbox_operator.conditions import Finding, merge
from outbox_operator.resources.condition import Condition, ConditionStatus, ConditionType
from outbox_operator.resources.listener import ListenerStatus, OutboxListener
from outbox_operator.resources.relay import OutboxRelay, RelayStatus

Status = RelayStatus | ListenerStatus

_SAME_MOMENT = timedelta(seconds=2)


def next_status(
    owner: OutboxRelay | OutboxListener, findings: Iterable[Finding], now: datetime, **fields: Any
) -> Status:
    """With what was found, and with these fields; one that is not given stays as it was."""
    metadata, old = owner.metadata, owner.status
    conditions = merge(old.conditions, findings, generation=metadata.generation, now=now)
    return old.model_copy(
        update={**fields, "conditions": conditions, "observed_generation": metadata.generation}
    )


def same_moment(old: datetime | None, new: datetime | None) -> datetime | None:
    """`new`, or `old` where they mean the same: reckoned from an age it is a little different each time."""
    return old if old and new and abs(new - old) < _SAME_MOMENT else new


def status_patch(old: Status, new: Status) -> list[dict[str, Any]]:
    """The operations of a JSON patch from one to the other; none where they are the same."""
    before, after = old.manifest(), new.manifest()
    if old == type(old)():
        # There may be no status yet to which something could be added.
        return [{"op": "add", "path": "/status", "value": after}] if before != after else []
    gone = [{"op": "remove", "path": f"/status/{key}"} for key in before if key not in after]
    changed = {key: value for key, value in after.items() if before.get(key) != value}
    return gone + [{"op": "add", "path": f"/status/{key}", "value": value} for key, value in changed.items()]


def turns(old: Sequence[Condition], new: Sequence[Condition]) -> list[Condition]:
    """The conditions that people should hear of: what is wrong now, and that all is well now.

    `Ready` repeats what is wrong; it is only heard where it is well.
    """
    before = {condition.type: (condition.status, condition.reason) for condition in old}
    return [
        condition
        for condition in new
        if before.get(condition.type) != (condition.status, condition.reason) and _is_news(condition, before)
    ]


def _is_news(condition: Condition, before: dict[str, tuple[ConditionStatus, str]]) -> bool:
    if condition.type == ConditionType.READY:
        was = before.get(condition.type)
        was_ready = was is not None and was[0] == ConditionStatus.TRUE
        return condition.status == ConditionStatus.TRUE and not was_ready
    if condition.type == ConditionType.PAUSED:
        return condition.status == ConditionStatus.TRUE
    return condition.status == ConditionStatus.FALSE
