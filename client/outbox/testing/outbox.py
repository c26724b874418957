"""The outbox of a test: sessions to emit through, and a `drain` that plays relay, broker and worker."""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from outbox.retry import Duration, RetryPolicy, policy_of
from outbox.testing import loop
from outbox.testing.agenda import Agenda, Item
from outbox.testing.attempt import AnyListener, Attempt
from outbox.testing.clock import AtOnce, Clock, Time, later
from outbox.testing.order import Order
from outbox.testing.queues import Queues
from outbox.testing.records import DeadLetter, Handled, RecordedMessage, Retry
from outbox.testing.session import MemorySession, SyncMemorySession
from outbox.testing.table import MemoryTable, Pending
from outbox.testing.transaction import Transaction

_log = logging.getLogger("outbox")


class MemoryOutbox:
    """An outbox in memory.

    Without a clock nothing waits: one `drain` makes timers and retries happen too, in the order of time.
    With a `Clock`, only what is due by it happens; relative etas, retry delays and expirations count by it.

    A session sees what is committed and its own emits. Where two of them set the same timer at once, Postgres
    would make the second wait for the first; here both get an id, and the one that commits first is recorded.
    """

    def __init__(
        self,
        listeners: Iterable[AnyListener] = (),
        *,
        retry_delays: RetryPolicy | Sequence[Duration] = (1, 10, 60, 300),
        clock: Clock | None = None,
        around: Callable[[], Any] | None = None,
    ) -> None:
        """Take the listeners to deliver to; `retry_delays` are for those that have none of their own.

        A listener for exactly once is given a session of this outbox as its `connection` or `session`, around
        what `around` makes, if given: a mock with what else the listener calls on it.
        """
        self._time: Time = clock or AtOnce()
        self._policy = policy_of(retry_delays)
        self._queues = Queues(listeners, self._policy)
        self._agenda = Agenda(self._time)
        self._table = MemoryTable(self._agenda, self._time)
        self._ready: deque[Attempt] = deque()
        self._order = Order()
        self._around = around
        self._noted: set[tuple[str, UUID]] = set()
        self._draining = False
        self.handled: list[Handled] = []
        """What listeners took, in this order."""
        self.dead_letters: list[DeadLetter] = []
        """What listeners failed at for good."""
        self.expired: list[RecordedMessage] = []
        """What waited longer than its `expiration` by the clock; without a clock nothing does."""
        self.unroutable: list[RecordedMessage] = []
        """What no listener's binding key matched."""
        self.duplicates: list[RecordedMessage] = []
        """What was delivered again to a listener that is called once, and so was not called."""

    @property
    def messages(self) -> list[RecordedMessage]:
        """Every message committed, also after it was delivered, without timers cancelled or replaced before.

        In the order of emitting; of two sessions, the one that committed first comes first.
        """
        return list(self._table.messages.values())

    @property
    def pending(self) -> list[RecordedMessage]:
        """The messages that were not handed to listeners yet."""
        return [pending.message for pending in self._table.pending.values()]

    @property
    def retrying(self) -> list[Retry]:
        """What listeners failed at and will be given again, earliest first."""
        return [
            Retry(attempt.message, attempt.listener.queue, attempt.number - 1, attempt.due)
            for attempt in self._agenda.attempts()
        ]

    @property
    def held(self) -> list[RecordedMessage]:
        """What waits in the queue of an ordered listener behind a message that failed."""
        return self._order.held

    def redeliver(self, message: RecordedMessage) -> None:
        """Have the next `drain` deliver a message once more, as a broker does after a worker died."""
        self._ready.extend(self._route(Pending(message, self._time.now)))

    def session(self, around: Any = None) -> MemorySession:
        """A session for `Emitter`; `around` has what else the code under test calls on it, as a mock does."""
        return MemorySession(Transaction(self._table), around)

    def sync_session(self, around: Any = None) -> SyncMemorySession:
        """The same for `SyncEmitter`, and for code that does not await."""
        return SyncMemorySession(Transaction(self._table), around)

    async def drain(self, *, limit: int = 10_000) -> None:
        """Deliver what is due, and what listeners emit meanwhile; a RuntimeError after `limit` deliveries."""
        self._begin_draining()
        try:
            deliveries = 0
            while (attempt := self._next()) is not None:
                self._check_limit(attempt, deliveries, limit)
                await self._deliver(attempt)
                deliveries += 1
        finally:
            self._draining = False

    def drain_sync(self, *, limit: int = 10_000) -> None:
        """`drain` for a test without an event loop; one is run only where a listener is async."""
        loop.run(lambda: self.drain(limit=limit), waits=self._queues.are_async)

    def _begin_draining(self) -> None:
        if self._draining:
            raise RuntimeError(
                "drain() is running already: a listener leaves it alone, and what it emits is delivered next"
            )
        self._draining = True

    def _next(self) -> Attempt | None:
        while True:
            while self._ready:
                attempt = self._ready.popleft()
                if self._order.admits(attempt):
                    return attempt
            item = self._agenda.next()
            if item is None:
                return None
            self._ready.extend(self._attempts(item))

    def _attempts(self, item: Item) -> list[Attempt]:
        if isinstance(item, Attempt):
            return [item]
        pending = self._table.take(item)
        if pending is None:
            return []
        attempts = self._route(pending)
        if pending.message not in self.unroutable:  # a relay parks such a message, and its key waits for it
            self._table.leave_line(pending.message)
        return attempts

    def _route(self, pending: Pending) -> list[Attempt]:
        message = pending.message
        if self._has_expired(pending):
            self.expired.append(message)
            return []
        listeners = self._queues.bound_to(message.routing_key)
        if not listeners:
            self.unroutable.append(message)
        deadline = self._deadline(pending)
        return [Attempt(message, listener, message.due, deadline) for listener in listeners]

    def _deadline(self, pending: Pending) -> datetime | None:
        """When its expiration ends; without a clock it never does."""
        expiration = pending.message.expiration
        if expiration is None or not isinstance(self._time, Clock):
            return None
        return later(pending.since, expiration)

    def _has_expired(self, pending: Pending) -> bool:
        """Whether it is too late; never at the moment it is due, not even with an expiration of 0."""
        deadline = self._deadline(pending)
        return deadline is not None and self._time.now > pending.since and self._time.now >= deadline

    def _check_limit(self, attempt: Attempt, deliveries: int, limit: int) -> None:
        if deliveries < limit:
            return
        self._ready.appendleft(attempt)
        raise RuntimeError(
            f"drain() has made {deliveries} deliveries, and the next is {attempt.message.routing_key!r} to "
            f"{attempt.listener.queue}. Does a listener emit what leads back to it? Give MemoryOutbox a "
            "Clock, so that a timer which sets itself again waits; or give drain(limit=…) a higher limit"
        )

    async def _deliver(self, attempt: Attempt) -> None:
        with self._time.at(attempt.due):
            if self._is_duplicate(attempt):
                self.duplicates.append(attempt.message)
                return
            error = await attempt.run(self.session(self._around() if self._around else None))
            if error is None:
                self._done(attempt)
            else:
                self._fail(attempt, error)

    def _is_duplicate(self, attempt: Attempt) -> bool:
        listener = attempt.listener
        is_noted = (listener.queue, attempt.message.message_id) in self._noted
        return is_noted and (listener.exactly_once or listener.deduplicate)

    def _done(self, attempt: Attempt) -> None:
        self._noted.add((attempt.listener.queue, attempt.message.message_id))
        self.handled.append(Handled(attempt.message, attempt.listener.queue, attempt.number))
        self._release(attempt)

    def _release(self, attempt: Attempt) -> None:
        self._ready.extendleft(reversed(self._order.release(attempt, self._time.now)))

    def _fail(self, attempt: Attempt, error: Exception) -> None:
        queue, message = attempt.listener.queue, attempt.message
        delay = attempt.delay(error, self._policy, self._time.now)
        _log.warning(
            "%s: attempt %d at %s %s failed, %s",
            queue,
            attempt.number,
            message.routing_key,
            message.message_id,
            "which is the last" if delay is None else f"the next is in {delay}",
            exc_info=error,
        )
        if delay is None:
            self.dead_letters.append(DeadLetter(message, queue, error, attempt.number))
            self._release(attempt)
        else:
            self._order.hold(attempt)
            again = attempt.again(later(self._time.now, delay))
            self._agenda.add(again.due, again)
