"""One call of one listener with one message."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

from outbox.arguments import BodyError, Delivery
from outbox.history import tracking
from outbox.listener import HandlerCancelledError, HandlerExitError, Listener, check_finished
from outbox.retry import RetryPolicy
from outbox.testing.clock import later
from outbox.testing.records import RecordedMessage

if TYPE_CHECKING:
    from outbox.testing.session import MemorySession

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
    deadline: datetime | None = None
    """When its expiration ends: no retry comes later; None for never."""
    number: int = 1
    """Which attempt of this listener at this message it is."""

    async def run(self, session: "MemorySession") -> Exception | None:
        """Call the listener, within a transaction of the session if it is for exactly once.

        Tell what it raised.
        """
        try:
            if self.listener.exactly_once:
                async with session.begin():
                    await self._call(session)
                    session.outbox_transaction.check_open()
            else:
                await self._call()
        except BaseException as error:
            if (failure := _failure(error)) is None:
                raise
            return failure
        return None

    def delay(self, error: Exception, default: RetryPolicy, now: datetime) -> timedelta | None:
        """How long to wait after `error`; None: dead-letter."""
        if isinstance(error, BodyError):
            return None
        delay = self.listener.policy(default).next_delay(self.number, error, _without_jitter)
        is_too_late = delay is not None and self.deadline is not None and later(now, delay) >= self.deadline
        return None if is_too_late else delay

    def again(self, due: datetime) -> "Attempt":
        """The attempt after this one."""
        return replace(self, due=due, number=self.number + 1)

    async def _call(self, session: "MemorySession | None" = None) -> None:
        arguments = self.listener.arguments.resolve(self._delivery(session))
        with tracking(self.message.tracking_ids):
            result = self.listener.callback(**arguments)
            if self.listener.is_async:
                result = await result
            check_finished(self.listener.callback, result)

    def _delivery(self, session: "MemorySession | None") -> Delivery:
        return Delivery(
            routing_key=self.message.routing_key,
            body=self.message.raw,
            content_type=self.message.content_type,
            tracking_ids=list(self.message.tracking_ids),
            queue_name=self.listener.queue,
            attempt_count=self.number,
            message=self.message,
            message_id=str(self.message.message_id),
            headers=self.message.headers,
            connection=session,
            session=session,
        )


def _failure(error: BaseException) -> Exception | None:
    """What a message fails with by what its listener raised; None for what ends the test."""
    failure: Exception
    match error:
        case Exception():
            return error
        case SystemExit():
            failure = HandlerExitError(error.code)
        case _ if _is_from_within(error):
            failure = HandlerCancelledError()
        case _:
            return None
    failure.__cause__ = error
    return failure


def _is_from_within(error: BaseException) -> bool:
    """Whether something inside of a listener was cancelled, and not the task of the test."""
    import asyncio  # not for tests that never get here: it takes a while to load

    if not isinstance(error, asyncio.CancelledError):
        return False
    try:
        task = asyncio.current_task()
    except RuntimeError:  # without an event loop
        task = None
    return task is None or not task.cancelling()


def _without_jitter(tiers: Sequence[timedelta]) -> timedelta:
    return tiers[len(tiers) // 2]  # they are the shortened, the plain and the lengthened delay
