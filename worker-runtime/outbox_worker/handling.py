"""The way of one message: its attempt, what follows from it, and how it is settled."""

import asyncio
import contextlib
import logging
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, assert_never

from outbox.arguments import BodyError
from outbox.listener import Listener
from outbox.retry import Retry, RetryPolicy
from outbox.wire import DEADLINE
from outbox_core.backoff import Backoff
from outbox_core.consumer import Received
from outbox_core.hooks import tell
from outbox_core.publisher import Message
from outbox_worker.attempt import Attempts
from outbox_worker.delivery import attempt_of, deadline_of, routing_key_of
from outbox_worker.errors import ExpiredError
from outbox_worker.hooks import Handled, Hook, Hooks
from outbox_worker.link import Link
from outbox_worker.metrics import Metrics
from outbox_worker.problems import Problems
from outbox_worker.redelivery import Failure, text_of
from outbox_worker.settling import Settled, Settling
from outbox_worker.transactions import DatabaseAwayError, MessageBusyError, Transactions
from outbox_worker.verdict import DeadLetter, TryAgain, Verdict, is_rejection, verdict

_log = logging.getLogger("outbox.worker")

_DATABASE = Backoff(0.1, 1.0)
"""Between two looks for a database that is away."""

_LOOK_SECONDS = 1.0
"""How often to look whether the connection is lost while a message waits in place."""

_MOST_RUNS = 5
"""How often a listener whose connection is lost under it begins anew before that counts as its failure."""


class _GivenUpError(Exception):
    """The message is somebody else's now: the worker stops, or the connection is gone."""


@dataclass(slots=True)
class _Memory:
    """The failures of the message at the head of an ordered queue, which a lost connection must not reset."""

    message_id: str | None = None
    failures: int = 0
    not_before: float = 0.0
    """When its next attempt is due, by the monotonic clock."""


class Handling:
    """Handles the messages of one queue."""

    def __init__(
        self,
        listener: Listener[..., Any],
        policy: RetryPolicy,
        *,
        attempts: Attempts,
        settling: Settling,
        transactions: Transactions | None,
        metrics: Metrics,
        hooks: Hooks,
        problems: Problems,
        stopping: asyncio.Event,
    ) -> None:
        self._queue = listener.queue
        self._policy = policy
        self._attempt = attempts.make
        self._settling = settling
        self._notes = transactions if listener.deduplicate else None
        self._metrics = metrics
        self._hooks = hooks
        self._problems = problems
        self._stopping = stopping
        self._turn = asyncio.Lock()
        self._memory = _Memory()
        self._head: Received | None = None
        self.handle = self._in_order if listener.ordered else self._at_once
        """One message, to its end. Raises nothing but a cancellation."""

    async def _at_once(self, link: Link, received: Received) -> None:
        try:
            message = received.message
            attempt, deadline_ms = attempt_of(message), self._deadline_ms(message)
            error = await self._try(link, received, attempt, deadline_ms)
            if error is None:
                if self._hooks.on_success is not None:
                    await self._tell(self._hooks.on_success, message, attempt)
                return
            failure = Failure(error, attempt, datetime.now(UTC), deadline_ms)
            await self._settle(link, received, failure, self._judged(failure))
        except _GivenUpError:
            link.give_back(received)
        except asyncio.CancelledError:
            self._interrupted(link, received)
            raise
        except Exception:
            self._unexpected(link, received)

    async def _in_order(self, link: Link, received: Received) -> None:
        """As above, but one message after the other; one that fails waits here, and the others behind it."""
        try:
            async with self._turn:
                await self._to_the_end(link, received)
        except _GivenUpError:
            link.give_back(received)
        except asyncio.CancelledError:
            self._interrupted(link, received)
            raise
        except Exception:
            self._unexpected(link, received)

    async def _to_the_end(self, link: Link, received: Received) -> None:
        message = received.message
        deadline_ms = self._deadline_ms(message)
        while True:
            memory = self._remembered(received)
            if link.is_lost:
                raise _GivenUpError
            if (rest := memory.not_before - time.monotonic()) > 0:
                await self._wait(link, rest)
            attempt = attempt_of(message) + memory.failures
            error = await self._try(link, received, attempt, deadline_ms)
            if error is None:
                await self._tell(self._hooks.on_success, message, attempt)
                return
            failure = Failure(error, attempt, datetime.now(UTC), deadline_ms)
            judged = self._judged(failure)
            if isinstance(judged, DeadLetter):
                await self._settle(link, received, failure, judged)
                return
            memory.failures += 1
            memory.not_before = time.monotonic() + judged.delay.total_seconds()
            self._log_failure(message, failure, judged)
            self._metrics.retried(judged.delay)
            await self._tell(self._hooks.on_retry, message, attempt, error, judged.delay)

    def _remembered(self, received: Received) -> _Memory:
        """What is known of the earlier attempts at this message here."""
        message_id = received.message.message_id
        if self._head is not received and (message_id is None or message_id != self._memory.message_id):
            self._memory = _Memory(message_id)
        self._head = received
        return self._memory

    def _deadline_ms(self, message: Message) -> int | None:
        if message.expiration_ms is None and DEADLINE not in message.headers:
            return None
        return deadline_of(message, _now_ms())

    async def _try(
        self, link: Link, received: Received, attempt: int, deadline_ms: int | None
    ) -> Exception | None:
        """One attempt, acked where it succeeds; else what it failed with."""
        # Without a deadline of its own a message was delivered in time.
        if deadline_ms is not None and DEADLINE in received.message.headers and deadline_ms <= _now_ms():
            return ExpiredError(f"its expiration ended before attempt {attempt}")
        runs = waits = 0
        try:
            while True:
                try:
                    was_called = await self._attempt(received, attempt)
                except DatabaseAwayError as error:
                    runs += error.has_run
                    if runs >= _MOST_RUNS:
                        return error
                    waits += 1
                    await self._hold(link, received, error, waits)
                except Exception as error:
                    return error
                else:
                    break
            if was_called and self._notes is not None:
                await self._note(link, received, self._notes)
        finally:
            if waits:
                self._problems.solved(asyncio.current_task())
        self._succeeded(link, received, was_called)
        return None

    async def _note(self, link: Link, received: Received, notes: Transactions) -> None:
        """Note that the message was handled; it was, whether or not that can be noted in the end."""
        waits = 0
        try:
            while True:
                try:
                    await notes.note_handled(self._queue, received.message.message_id or "")
                    break
                except DatabaseAwayError as error:
                    waits += 1
                    await self._hold(link, received, error, waits)
        except _GivenUpError:
            _log.warning(
                "message %s of queue %s was handled, which could not be noted: a duplicate of it would be "
                "handled again",
                received.message.message_id,
                self._queue,
            )
        finally:
            if waits:
                self._problems.solved(asyncio.current_task())

    def _succeeded(self, link: Link, received: Received, was_called: bool) -> None:
        if was_called:
            self._metrics.succeeded()
        else:
            self._metrics.duplicate()
        if not link.ack(received):
            _log.warning(
                "message %s of queue %s was handled but could not be acked, since its connection is gone; "
                "it is delivered again",
                received.message.message_id,
                self._queue,
            )
        elif _log.isEnabledFor(logging.INFO):
            done = "processed successfully" if was_called else "skipped: it had been handled before"
            _log.info("message %s of queue %s %s", received.message.message_id, self._queue, done)

    def _judged(self, failure: Failure) -> Verdict:
        return verdict(
            self._policy,
            failure.attempt,
            failure.error,
            deadline_ms=failure.deadline_ms,
            now_ms=round(failure.at.timestamp() * 1000),
        )

    async def _settle(self, link: Link, received: Received, failure: Failure, judged: Verdict) -> None:
        message, error = received.message, failure.error
        self._log_failure(message, failure, judged)
        match judged:
            case TryAgain(delay):
                settled = await self._settling.retry(link, received, failure, delay)
                if settled is Settled.RETRIED:
                    self._metrics.retried(delay)
                    await self._tell(self._hooks.on_retry, message, failure.attempt, error, delay)
            case DeadLetter():
                settled = await self._settling.dead_letter(link, received, failure)
            case _:
                assert_never(judged)
        if settled is Settled.DEAD_LETTERED:
            self._metrics.dead_lettered(rejected=is_rejection(error))
            await self._tell(self._hooks.on_dead_letter, message, failure.attempt, error)

    def _log_failure(self, message: Message, failure: Failure, judged: Verdict) -> None:
        match judged:
            case TryAgain(delay):
                follows = f"it is tried again in {delay.total_seconds():g} s"
            case DeadLetter(reason):
                follows = f"it is dead-lettered: {reason}"
            case _:
                assert_never(judged)
        error = failure.error
        _log.log(
            logging.ERROR if isinstance(error, BodyError) else logging.WARNING,
            "attempt %d at message %s of queue %s failed with %s: %s; %s",
            failure.attempt,
            message.message_id,
            self._queue,
            type(error).__name__,
            text_of(error),
            follows,
            # What was refused or put off on purpose needs no traceback.
            exc_info=None if is_rejection(error) or isinstance(error, Retry) else error,
        )

    async def _hold(self, link: Link, received: Received, error: DatabaseAwayError, waits: int) -> None:
        """Keep the message while the database is away: no attempt is spent on that."""
        if waits == 1:
            _log.warning(
                "message %s of queue %s is held: %s", received.message.message_id, self._queue, error
            )
        is_busy = isinstance(error, MessageBusyError)
        self._problems.note(
            asyncio.current_task(), str(error) if is_busy else f"the database is away: {error}"
        )
        await self._wait(link, _DATABASE.delay(waits))

    async def _wait(self, link: Link, seconds: float) -> None:
        """Wait in place, unless the worker stops or the connection is lost meanwhile."""
        until = time.monotonic() + seconds
        while not link.is_lost and not self._stopping.is_set():
            if (rest := until - time.monotonic()) <= 0:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(rest, _LOOK_SECONDS)):
                    await self._stopping.wait()
        raise _GivenUpError

    async def _tell(
        self,
        hook: Hook | None,
        message: Message,
        attempt: int,
        error: BaseException | None = None,
        delay: timedelta | None = None,
    ) -> None:
        if hook is not None:
            handled = Handled(message.message_id, routing_key_of(message), self._queue, attempt, error, delay)
            await tell(hook, handled, _log)

    def _interrupted(self, link: Link, received: Received) -> None:
        if link.give_back(received):
            _log.warning(
                "message %s of queue %s is given back unfinished", received.message.message_id, self._queue
            )

    def _unexpected(self, link: Link, received: Received) -> None:
        # Such as a policy of the application that raises. The broker's delivery limit ends what repeats.
        _log.exception(
            "message %s of queue %s could not be settled and is given back",
            received.message.message_id,
            self._queue,
        )
        link.give_back(received)


def _now_ms() -> int:
    return round(time.time() * 1000)
