"""Since when a listener that is being deleted has had no message anywhere. Pure.

A broker's counts are some seconds old, and it does not tell which listener the messages of a shared delay
tier are for: that none is on its way is only known after none was seen for longer than that.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from outbox.topology import dead_letter_queue
from outbox_operator.broker.removal_plan import binding_removal, open_bindings
from outbox_operator.broker.snapshot import BrokerProblem, Snapshot
from outbox_operator.planning.listener_plan import tiers_of
from outbox_operator.resources import OutboxListener
from outbox_operator.subscriptions import queue_of


@dataclass(frozen=True, slots=True)
class Calm:
    """Each is a moment since when it has been so at every look; None if it is not so, or unknown."""

    queue: datetime | None = None
    """The queue is empty, and nothing is bound to it. One that is gone is empty."""
    dead_letters: datetime | None = None
    """The dead-letter queue is empty."""
    letters_unbound: datetime | None = None
    """No binding of its own brings a message into the dead-letter queue."""
    tiers: datetime | None = None
    """The delay tiers that it uses are empty."""
    stopped: datetime | None = None
    """It has no pods, and nothing that would start some."""
    removed: datetime | None = None
    """The queue is gone."""
    delays: tuple[timedelta, ...] = ()
    """The retry delays that its pods had, whatever its spec says."""
    was_marked: bool = False
    """Its mark was on one of its queues: it goes with an exchange that is deleted."""


def calm_after(
    before: Calm,
    listener: OutboxListener,
    exchange: str,
    broker: Snapshot | BrokerProblem,
    *,
    has_pods: bool,
    now: datetime,
    installation: str = "",
) -> Calm:
    """The state after one more look."""

    def since(moment: datetime | None, holds: bool) -> datetime | None:
        return (moment or now) if holds else None

    stopped = since(before.stopped, not has_pods)
    if isinstance(broker, BrokerProblem):
        return Calm(stopped=stopped, delays=before.delays, was_marked=before.was_marked)
    queue, tiers = queue_of(listener), tiers_of(listener, exchange, before.delays)
    letters, path = dead_letter_queue(queue), listener.metadata.path
    is_calm = broker.is_empty(queue) and not broker.bindings.get(queue)
    marked = any(binding_removal(name, path, broker, installation) for name in (queue, letters))
    letters_open = bool(open_bindings(letters, path, broker, installation))
    return Calm(
        queue=since(before.queue, is_calm),
        dead_letters=since(before.dead_letters, broker.is_empty(letters)),
        letters_unbound=since(before.letters_unbound, not letters_open),
        tiers=since(before.tiers, all(map(broker.is_empty, tiers))),
        stopped=stopped,
        delays=before.delays,
        removed=since(before.removed, not broker.exists(queue)),
        was_marked=before.was_marked or marked,
    )
