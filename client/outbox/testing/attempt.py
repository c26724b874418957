"""One call of one listener with one message."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from outbox.arguments import BodyError, Delivery
from outbox.history import tracking
from outbox.listener import Listener
from outbox.retry import RetryPolicy
from outbox.testing.records import RecordedMessage

AnyListener: TypeAlias = Listener[..., Any]


@dataclass(frozen=True, slots=True)
class Attempt:
    """A listener's turn at a message."""

    message: RecordedMessage
    """The message."""
    listener: AnyListener
    """Who gets it."""
    due: datetime
    """When."""
    number: int = 1
    """Which attempt of this listener at this message it is."""

    async def run(self) -> Exception | None:
        """Call the listener, and tell what it raised."""
        try:
            arguments = self.listener.arguments.resolve(self._delivery())
            with tracking(self.message.tracking_ids):
                result = self.listener.callback(**arguments)
                if self.listener.is_async:
                    await result
        except Exception as error:
            return error
        return None

    def delay(self, error: Exception, default: RetryPolicy) -> timedelta | None:
        """How long to wait after `error`; None: dead-letter."""
        if isinstance(error, BodyError):
            return None
        return self.listener.policy(default).next_delay(self.number, error, _without_jitter)

    def again(self, due: datetime) -> "Attempt":
        """The attempt after this one."""
        return replace(self, due=due, number=self.number + 1)

    def _delivery(self) -> Delivery:
        return Delivery(
            routing_key=self.message.routing_key,
            body=self.message.raw,
            content_type=self.message.content_type,
            tracking_ids=list(self.message.tracking_ids),
            queue_name=self.listener.queue,
            attempt_count=self.number,
            message=self.message,
        )


def _without_jitter(tiers: Sequence[timedelta]) -> timedelta:
    return tiers[len(tiers) // 2]  # they are the shortened, the plain and the lengthened delay
