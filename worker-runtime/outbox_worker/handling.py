"""The way of one message: its attempt, what follows from it, and how it is settled."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, assert_never

from outbox.arguments import BodyError
from outbox.listener import Listener
from outbox.retry import Retry, RetryPolicy
from outbox.wire import DEADLINE
from outbox_core.backoff import Backoff
from outbox_core.consumer import Received
from outbox_core.error_text import text_of
from outbox_core.hooks import tell
from outbox_core.publisher import Message
from outbox_worker.attempt import Attempts
from outbox_worker.delivery import attempt_of, deadline_of, routing_key_of
from outbox_worker.errors import ExpiredError, HeldTooLongError, NoThreadError, TransactionEndedError
from outbox_worker.holding import HoldLimit, shortest_delay
from outbox_worker.hooks import Handled, Hook, Hooks
from outbox_worker.link import Held, Link, LinkLostError, Pause
from outbox_worker.metrics import Metrics
from outbox_worker.problems import Problems
from outbox_worker.redelivery import Failure
from outbox_worker.settling import Settled, Settling
from outbox_worker.threads import Threads
from outbox_worker.transactions import DatabaseAwayError, MessageBusyError, Transactions
from outbox_worker.verdict import DeadLetter, TryAgain, Verdict, is_rejection, verdict

_log = logging.getLogger("outbox.worker")

_DATABASE = Backoff(0.1, 1.0)
"""Between two looks for a database that is away."""

_LOOK_SECONDS = 1.0
"""How often to look whether the connection is lost while a message waits in place."""

_MOST_RUNS = 5
"""How often a listener whose connection is lost under it begins anew before that counts as its failure, and
how often a message is tried with which the worker itself fails."""

_AGAIN = Backoff(1.0, 30.0)
"""Before another try of a message with which the worker itself has failed."""


class _GivenUpError(Exception):
    """The message is somebody else's now: the worker stops, or the connection is gone."""


class _OverdueError(_GivenUpError):
    """The message was held for as long as it may, and has to be returned."""

    def __init__(self, reason: str, pause: Pause | None = None) -> None:
        """`reason` is what it waits for, and `pause` is for what the whole queue waits for."""
        super().__init__(reason)
        self.reason = reason
        self.pause = pause


@dataclass(slots=True)
class _Memory:
    """What has happened to the message at the head of an ordered queue, which its return must not reset."""

    message_id: str | None = None
    failures: int = 0
    not_before: float = 0.0
    """When its next attempt is due, by the monotonic clock."""
    error: BaseException | None = None
    """What its last attempt failed with."""
    final: tuple[Failure, DeadLetter] | None = None
    """Why it has to be dead-lettered, once that is clear."""


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
        hold_limit: HoldLimit,
        threads: Threads,
        stopping: asyncio.Event,
    ) -> None:
        self._queue = listener.queue
        self._policy = policy
        self._attempt = attempts.make
        self._settling = settling
        self._transactions = transactions
        self._notes = transactions if listener.deduplicate else None
        self._metrics = metrics
        self._hooks = hooks
        self._problems = problems
        self._hold_limit = hold_limit
        self._shortest_delay = shortest_delay(policy)
        self._threads = threads
        self._stopping = stopping
        self._turn = asyncio.Lock()
        self._memory = _Memory()
        self._head: Received | None = None
        self._returned: Received | None = None
        """What was returned last, if it has not come again."""
        self._run = self._in_order if listener.ordered else self._at_once

    async def handle(self, link: Link, received: Received) -> None:
        """Handle one message, to its end. Raises nothing but a cancellation."""
        held = Held(link, received, self._hold_limit.seconds)
        this, failures = object(), 0
        try:
            while (error := await self._failed(held)) is not None:
                failures += 1
                if failures == _MOST_RUNS:
                    await self._abandon(held, error)
                    return
                reason = f"{type(error).__name__}: {text_of(error)}"
                self._problems.note(this, f"queue {self._queue}: a message cannot be handled: {reason}")
                held.extend()
                await self._wait(held, _AGAIN.delay(failures), reason)
        except _OverdueError:
            held.requeue()
        except _GivenUpError:
            await self._give_back(held)
        except asyncio.CancelledError:
            await self._give_back(held, is_unfinished=True)
            raise
        finally:
            if failures:
                self._problems.solved(this)

    async def _failed(self, held: Held) -> Exception | None:
        """Handle the message; returns an error that is none of the listener's."""
        try:
            try:
                await self._run(held)
            except _OverdueError as overdue:
                await self._return(held, overdue)
        except _GivenUpError:
            raise
        except Exception as error:
            _log.exception("message %s of queue %s is held", held.message.message_id, self._queue)
            return error
        return None

    async def _abandon(self, held: Held, error: Exception) -> None:
        """Dead-letter a message with which the worker itself fails."""
        failure = Failure(error, attempt_of(held.message), datetime.now(UTC))
        self._memory = _Memory()
        held.keep()
        try:
            await self._settling.dead_letter(held, failure)
        except Exception:
            _log.exception(
                "message %s of queue %s is dead-lettered by the broker, without its error",
                held.message.message_id,
                self._queue,
            )
            held.dead_letter()

    async def _return(self, held: Held, overdue: _OverdueError) -> None:
        """Return a message before the broker closes the channel over it. It comes again at its place."""
        message_id = held.message.message_id
        if not self._hold_limit.may_return(held.returns):
            await self._give_up(held, overdue)
        elif overdue.pause is None:
            _log.info(
                "message %s of queue %s is returned and taken again before the broker closes its channel: %s",
                message_id,
                self._queue,
                overdue.reason,
            )
            self._returned = held.received
            held.requeue()
        else:
            held.link.request_pause(overdue.pause)
            await held.link.is_stopped.wait()
            held.give_back()

    async def _give_up(self, held: Held, overdue: _OverdueError) -> None:
        """Dead-letter a message that has to wait and cannot be returned: the broker would not say why."""
        memory = self._memory if self._head is held.received else _Memory()
        attempts = max(1, attempt_of(held.message) - 1 + memory.failures)
        error = HeldTooLongError(overdue.reason, held.returns)
        error.__cause__ = memory.error
        failure, judged = memory.final or (
            Failure(error, attempts, datetime.now(UTC)),
            DeadLetter("it cannot be held for longer"),
        )
        held.keep()
        if await self._settle(held, failure, judged) is not Settled.LEFT:
            self._memory = _Memory()

    async def _at_once(self, held: Held) -> None:
        message = held.message
        attempt, deadline_ms = attempt_of(message), self._deadline_ms(message)
        error = await self._try(held, attempt, deadline_ms)
        if error is None:
            if self._hooks.on_success is not None:
                await self._tell(self._hooks.on_success, message, attempt)
            return
        failure, judged = self._judged(Failure(error, attempt, datetime.now(UTC), deadline_ms))
        await self._settle(held, failure, judged)

    async def _in_order(self, held: Held) -> None:
        """As above, but one message after the other; one that fails waits here, and the others behind it."""
        async with self._turn:
            await self._to_the_end(held)

    async def _to_the_end(self, held: Held) -> None:
        message = held.message
        deadline_ms = self._deadline_ms(message)
        while True:
            memory = self._remembered(held)
            if held.is_lost:
                raise _GivenUpError
            if memory.final is not None:
                await self._end(held, *memory.final)
                return
            attempt = attempt_of(message) + memory.failures
            if (rest := memory.not_before - time.monotonic()) > 0:
                await self._wait(held, rest, f"it waits for attempt {attempt}")
            error = await self._try(held, attempt, deadline_ms)
            if error is None:
                self._memory = _Memory()
                await self._tell(self._hooks.on_success, message, attempt)
                return
            failure, judged = self._judged(Failure(error, attempt, datetime.now(UTC), deadline_ms))
            memory.error = failure.error
            if isinstance(judged, DeadLetter):
                # Should it be returned before it is dead-lettered, it is not to be tried again.
                memory.final = failure, judged
                continue
            memory.failures += 1
            memory.not_before = time.monotonic() + judged.delay.total_seconds()
            self._log_failure(message, failure, judged)
            self._metrics.retried(judged.delay)
            await self._tell(self._hooks.on_retry, message, attempt, error, judged.delay)

    async def _end(self, held: Held, failure: Failure, judged: DeadLetter) -> None:
        if await self._settle(held, failure, judged) is not Settled.LEFT:
            # Moved back to its queue, it begins anew.
            self._memory = _Memory()

    def _remembered(self, held: Held) -> _Memory:
        """What is known of the earlier attempts at this message here."""
        if self._head is not held.received:
            if not self._is_known(held.received):
                self._memory = _Memory(held.message.message_id)
            self._head, self._returned = held.received, None
        return self._memory

    def _is_known(self, received: Received) -> bool:
        """Whether the message is the one at the head before: it has come again, and was not sent again."""
        message, returned = received.message, self._returned
        if returned is not None and message.message_id is None:
            return returned.message.message_id is None and returned.message.body == message.body
        return (
            message.message_id is not None
            and message.message_id == self._memory.message_id
            and (received.redelivered or returned is not None)
        )

    def _deadline_ms(self, message: Message) -> int | None:
        if message.expiration_ms is None and DEADLINE not in message.headers:
            return None
        return deadline_of(message, _now_ms())

    async def _try(self, held: Held, attempt: int, deadline_ms: int | None) -> Exception | None:
        """One attempt, acked where it succeeds; else what it failed with."""
        # Without a deadline of its own a message was delivered in time.
        if deadline_ms is not None and DEADLINE in held.message.headers and deadline_ms <= _now_ms():
            return ExpiredError(f"its expiration ended before attempt {attempt}")
        runs = waits = 0
        try:
            while True:
                try:
                    was_called = await self._attempt(held, attempt)
                except DatabaseAwayError as error:
                    runs += error.has_run
                    if runs >= _MOST_RUNS:
                        return error
                    waits += 1
                    await self._hold(held, error, waits)
                except LinkLostError:
                    raise _GivenUpError from None
                except NoThreadError as error:
                    reason = str(error)
                    raise _OverdueError(reason, Pause(reason, self._threads.wait_available)) from None
                except TransactionEndedError as error:
                    await self._forget(held)
                    return error
                except Exception as error:
                    return error
                else:
                    break
            if was_called and self._notes is not None:
                await self._note(held, self._notes)
        finally:
            if waits:
                self._problems.solved(asyncio.current_task())
        self._succeeded(held, was_called)
        return None

    async def _note(self, held: Held, notes: Transactions) -> None:
        """Note that the message was handled; it was, whether or not that can be noted in the end."""
        try:
            await self._persist(held, notes.note_handled)
        except _GivenUpError:
            _log.warning(
                "message %s of queue %s was handled, which could not be noted: a duplicate of it would be "
                "handled again",
                held.message.message_id,
                self._queue,
            )

    async def _forget(self, held: Held) -> None:
        """Remove the note that a listener has committed: with it a redrive would be skipped."""
        assert self._transactions is not None  # noqa: S101 - only an exactly-once listener has a transaction
        try:
            await self._persist(held, self._transactions.forget)
        except _GivenUpError as error:
            _log.error(
                "message %s of queue %s has failed, but its listener has committed the note of it, which "
                "could not be removed: it is skipped when it is delivered again",
                held.message.message_id,
                self._queue,
            )
            if not isinstance(error, _OverdueError):
                raise

    async def _persist(self, held: Held, write: Callable[[str, str], Awaitable[None]]) -> None:
        """Write to the inbox, as soon as the database can be used."""
        waits = 0
        held.extend()
        try:
            while True:
                try:
                    await write(self._queue, held.message.message_id or "")
                except DatabaseAwayError as error:
                    waits += 1
                    await self._hold(held, error, waits, may_pause=False)
                else:
                    return
        finally:
            if waits:
                self._problems.solved(asyncio.current_task())

    def _succeeded(self, held: Held, was_called: bool) -> None:
        if was_called:
            self._metrics.succeeded()
        else:
            self._metrics.duplicate()
        if not held.ack():
            _log.warning(
                "message %s of queue %s was handled but could not be acked, since its connection is gone; "
                "it is delivered again",
                held.message.message_id,
                self._queue,
            )
        elif _log.isEnabledFor(logging.INFO):
            done = "processed successfully" if was_called else "skipped: it had been handled before"
            _log.info("message %s of queue %s %s", held.message.message_id, self._queue, done)

    def _judged(self, failure: Failure) -> tuple[Failure, Verdict]:
        """The failure, and what follows from it. An error of the policy takes the place of the listener's."""
        try:
            return failure, verdict(
                self._policy,
                failure.attempt,
                failure.error,
                deadline_ms=failure.deadline_ms,
                now_ms=round(failure.at.timestamp() * 1000),
            )
        except Exception as error:
            if error.__cause__ is None:
                error.__cause__ = failure.error
            return replace(failure, error=error), DeadLetter("its retry policy fails")

    async def _settle(self, held: Held, failure: Failure, judged: Verdict) -> Settled:
        message, error = held.message, failure.error
        self._log_failure(message, failure, judged)
        match judged:
            case TryAgain(delay):
                settled = await self._settling.retry(held, failure, delay)
                if settled is Settled.RETRIED:
                    self._metrics.retried(delay)
                    await self._tell(self._hooks.on_retry, message, failure.attempt, error, delay)
            case DeadLetter():
                settled = await self._settling.dead_letter(held, failure)
            case _:
                assert_never(judged)
        if settled is Settled.DEAD_LETTERED:
            self._metrics.dead_lettered(rejected=is_rejection(error))
            await self._tell(self._hooks.on_dead_letter, message, failure.attempt, error)
        if settled is Settled.LEFT and held.is_overdue and not held.is_lost:
            raise _OverdueError("the broker does not confirm its retry or its dead letter")
        return settled

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

    async def _hold(
        self, held: Held, error: DatabaseAwayError, waits: int, *, may_pause: bool = True
    ) -> None:
        """Keep the message while the database is away: no attempt is spent on that.

        With `may_pause` its queue is not consumed any more when that takes too long.
        """
        if waits == 1:
            _log.warning("message %s of queue %s is held: %s", held.message.message_id, self._queue, error)
        is_busy = isinstance(error, MessageBusyError)
        reason = str(error) if is_busy else f"the database is away: {error}"
        self._problems.note(asyncio.current_task(), reason)
        pause = Pause(reason, self._database_is_back) if may_pause and not is_busy else None
        await self._wait(held, _DATABASE.delay(waits), reason, pause)

    async def _database_is_back(self) -> None:
        """Wait until the inbox can be read."""
        assert self._transactions is not None  # noqa: S101 - without one it is not missed
        failures = 0
        while True:
            try:
                await self._transactions.was_handled(self._queue, "")
            except DatabaseAwayError:
                failures += 1
                await asyncio.sleep(_DATABASE.delay(failures))
            else:
                return

    async def _wait(self, held: Held, seconds: float, reason: str, pause: Pause | None = None) -> None:
        """Wait in place for this `reason`, unless the worker stops or the connection is lost meanwhile.

        A message that is held for too long is overdue, and with a `pause` its whole queue.
        """
        until = time.monotonic() + seconds
        while not held.is_lost and not self._stopping.is_set():
            if held.is_overdue or (pause is not None and held.link.is_pausing):
                raise _OverdueError(reason, pause)
            if (rest := until - time.monotonic()) <= 0:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(rest, _LOOK_SECONDS, held.seconds_left)):
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

    async def _give_back(self, held: Held, *, is_unfinished: bool = False) -> None:
        """Let another worker have the message, which has not failed.

        Before RabbitMQ 4.3 each return counts towards the delivery limit, so a message that was returned
        often takes a delay tier instead. An ordered one cannot: others would overtake it.
        """
        is_given_back = held.give_back() if self._may_return(held) else await self._postpone(held)
        if is_given_back and is_unfinished:
            _log.warning(
                "message %s of queue %s is given back unfinished", held.message.message_id, self._queue
            )

    def _may_return(self, held: Held) -> bool:
        return (
            held.is_lost
            or held.link.keeps_order
            or self._shortest_delay is None
            or self._hold_limit.may_return(held.returns)
        )

    async def _postpone(self, held: Held) -> bool:
        assert self._shortest_delay is not None  # noqa: S101 - otherwise it is returned
        deadline_ms = self._deadline_ms(held.message)
        if await self._settling.give_back(held, self._shortest_delay, deadline_ms):
            return True
        return held.give_back()


def _now_ms() -> int:
    return round(time.time() * 1000)
