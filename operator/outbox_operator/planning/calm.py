"""Since when nothing was seen of a listener's messages. Pure.

What a broker counts is some seconds old, and which listener the messages of a shared delay tier are for it
does not tell: that none is on its way can only be known by having seen none for long enough.
"""

from dataclasses import dataclass
from datetime import datetime

from outbox_operator.broker.snapshot import BrokerProblem, Snapshot
from outbox_operator.planning.listener_plan import tiers_of
from outbox_operator.resources import OutboxListener
from outbox_operator.subscriptions import queue_of


@dataclass(frozen=True, slots=True)
class Calm:
    """Since when it has been calm; None where it is not, or nobody could look."""

    queue: datetime | None = None
    """Since when the listener's queue has been seen empty."""
    tiers: datetime | None = None
    """Since when the delay tiers that it uses have been seen empty."""


def calm_after(
    before: Calm, listener: OutboxListener, exchange: str, broker: Snapshot | BrokerProblem, now: datetime
) -> Calm:
    """As `before` says, and as it is after one more look."""
    if isinstance(broker, BrokerProblem):
        return Calm()
    is_empty = not broker.messages(queue_of(listener))
    are_empty = not any(map(broker.messages, tiers_of(listener, exchange)))
    return Calm(
        queue=(before.queue or now) if is_empty else None,
        tiers=(before.tiers or now) if are_empty else None,
    )
