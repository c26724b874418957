"""Messages that were sent and that the broker has not confirmed: their rows are leased until it does.

Sending such a message again could only duplicate it, so its channel is kept open instead. Meanwhile the row
is due in the future, so that no relay claims it. If this relay dies the lease expires, and it is sent again.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from outbox_core.broker import Aside
from outbox_core.database import Database
from outbox_core.publisher import Confirmed, Publisher
from outbox_relay.hooks import Hooks, Relayed, tell
from outbox_relay.metrics import Metrics
from outbox_relay.queries import Key, Queries
from outbox_relay.routes import Routes
from outbox_relay.sending import Waiting
from outbox_relay.settings import IMMEDIATELY, Settings

LEASE_SECONDS = 60.0
"""For how long a row is not due after its message was sent; extended while its channel is open."""

_LOOK_SECONDS = 0.5
_REOPENED_SECONDS = 3.0
"""How long after its route has opened a message is still waited for, before it is sent again elsewhere."""
_MOST_KEPT = 64
"""How many channels and connections are kept open for late confirms."""

_log = logging.getLogger("outbox.relay")


class _Action(Enum):
    """What to do with a message that was sent."""

    SETTLE = auto()
    """It is confirmed."""
    FORGET = auto()
    """It is refused: the row is due when the lease expires."""
    GIVE_BACK = auto()
    """Its channel is lost: the row is due at once."""
    SEND_AGAIN = auto()
    """Others of its route are confirmed, and it is not: its connection is stuck."""
    RENEW = auto()
    """The lease has to be extended."""


@dataclass(slots=True)
class Leased:
    """A row whose message was sent and has no answer."""

    key: Key
    attempts: int
    """As in its row. A row with another number was claimed by somebody else meanwhile."""
    relayed: Relayed
    age_seconds: float
    waiting: Waiting
    is_counted: bool = True
    """Whether sending it was counted as an attempt."""
    sent_at: float = field(default_factory=time.monotonic)
    leased_at: float = field(default_factory=time.monotonic)
    opened_at: float | None = None
    """When its route was first seen open."""


class Unconfirmed:
    """Settles late confirms, extends leases, and gives back what will never be confirmed."""

    def __init__(
        self,
        *,
        settings: Settings,
        database: Database,
        queries: Queries,
        routes: Routes,
        metrics: Metrics,
        hooks: Hooks,
        on_change: Callable[[], None],
    ) -> None:
        """`on_change` is called after rows were settled or given back: others may have become due."""
        is_kept = settings.clean_up_after != IMMEDIATELY
        self._settle = queries.mark_late if is_kept else queries.delete_late
        self._reschedule = queries.reschedule
        self._database = database
        self._routes = routes
        self._metrics = metrics
        self._hooks = hooks
        self._on_change = on_change
        self._sent: dict[Key, Leased] = {}
        self._kept: list[Publisher | Aside] = []
        self._kept_at = 0.0
        """When the last one came. What is awaited on it is added only after it is committed."""

    def __contains__(self, key: Key) -> bool:
        return key in self._sent

    def __len__(self) -> int:
        return len(self._sent)

    def add(self, sent: Sequence[Leased]) -> None:
        """Wait for the confirms of messages whose leases are committed."""
        self._sent.update({message.key: message for message in sent})
        self._metrics.unconfirmed(len(self._sent))

    async def keep(self, channel: Publisher | Aside) -> None:
        """Keep a channel, or a connection with its channels, open until all confirms have come."""
        self._kept_at = time.monotonic()
        self._kept.append(channel)
        if len(self._kept) > _MOST_KEPT:
            await self._kept.pop(0).aclose()

    async def run(self) -> None:
        """Look after the messages until cancelled; without a database it waits for one."""
        connection: Any = None
        try:
            while True:
                await asyncio.sleep(_LOOK_SECONDS)
                if not self._sent:
                    if time.monotonic() - self._kept_at > LEASE_SECONDS:
                        await self._close_kept()
                    _end(connection)
                    connection = None
                    continue
                try:
                    if connection is None:
                        connection = await self._database.connect("outbox-relay-confirms")
                    await self.run_once(connection)
                except Exception as error:
                    if not self._database.is_passing(error):
                        raise
                    # The lanes say that the database is away; once is enough.
                    _log.debug("late confirms have lost %s: %s", self._database.where, error)
                    _end(connection)
                    connection = None
        finally:
            _end(connection)
            await self._close_kept()

    async def run_once(self, connection: Any) -> None:
        """Carry out what has to be done for each message now."""
        now = time.monotonic()
        todo = self._todo(now)
        # Before their rows are due: a lane that claims one is to send it.
        self._forget(*todo[_Action.FORGET], *todo[_Action.SEND_AGAIN], *todo[_Action.GIVE_BACK])
        if sent := todo[_Action.SETTLE]:
            await _execute(connection, self._settle, *_columns(sent))
            self._forget(*sent)
        if sent := todo[_Action.SEND_AGAIN]:
            await _execute(connection, self._reschedule, *_columns(sent), [0] * len(sent), 0.0)
        if sent := todo[_Action.GIVE_BACK]:
            # An outage of the broker is no attempt of the message.
            uncounted = [int(message.is_counted) for message in sent]
            await _execute(connection, self._reschedule, *_columns(sent), uncounted, 0.0)
        if sent := todo[_Action.RENEW]:
            await _execute(connection, self._reschedule, *_columns(sent), [0] * len(sent), LEASE_SECONDS)
            for message in sent:
                message.leased_at = now
        await self._report(todo[_Action.SETTLE], now)
        if any(todo[action] for action in (_Action.SETTLE, _Action.SEND_AGAIN, _Action.GIVE_BACK)):
            self._on_change()

    def _forget(self, *sent: Leased) -> None:
        for message in sent:
            del self._sent[message.key]
        self._metrics.unconfirmed(len(self._sent))

    def _todo(self, now: float) -> dict[_Action, list[Leased]]:
        todo: dict[_Action, list[Leased]] = {action: [] for action in _Action}
        # Each time it is asked for, the list is made anew.
        outcomes = {id(sent.waiting.answers): sent.waiting.answers.outcomes for sent in self._sent.values()}
        for sent in self._sent.values():
            outcome = outcomes[id(sent.waiting.answers)][sent.waiting.place]
            if isinstance(outcome, Confirmed):
                todo[_Action.SETTLE].append(sent)
            elif outcome is not None:
                todo[_Action.FORGET].append(sent)
            elif sent.waiting.answers.lost is not None:
                todo[_Action.GIVE_BACK].append(sent)
            elif self._is_passed_over(sent, now):
                todo[_Action.SEND_AGAIN].append(sent)
            elif now - sent.leased_at > LEASE_SECONDS / 2:
                todo[_Action.RENEW].append(sent)
        return todo

    def _is_passed_over(self, sent: Leased, now: float) -> bool:
        if not sent.is_counted:
            # It waits for the end of an alarm, which is no matter of its route.
            return False
        if self._routes.is_closed(sent.relayed.routing_key):
            sent.opened_at = None
            return False
        sent.opened_at = now if sent.opened_at is None else sent.opened_at
        return now - sent.opened_at > _REOPENED_SECONDS

    async def _report(self, confirmed: Sequence[Leased], now: float) -> None:
        opened = self._routes.confirmed(sent.relayed.routing_key for sent in confirmed)
        for routing_key in opened:
            _log.info("messages of %s are confirmed again", routing_key)
        self._metrics.routes_closed(len(self._routes))
        self._metrics.published(sent.age_seconds + now - sent.sent_at for sent in confirmed)
        for sent in confirmed:
            await tell(self._hooks.on_published, sent.relayed)

    async def _close_kept(self) -> None:
        while self._kept:
            await self._kept.pop().aclose()


async def _execute(connection: Any, query: str, *arguments: Any) -> None:
    async with connection.transaction(isolation="read_committed"):
        await connection.execute(query, *arguments)


def _columns(sent: Sequence[Leased]) -> list[list[int]]:
    """What identifies the rows, and that nobody has claimed them since."""
    partitions, ids = zip(*(message.key for message in sent), strict=True)
    return [list(partitions), list(ids), [message.attempts for message in sent]]


def _end(connection: Any) -> None:
    if connection is not None:
        connection.terminate()
