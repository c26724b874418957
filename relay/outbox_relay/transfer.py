"""One batch: claim it, publish it, settle it, in one transaction of one connection.

The rows stay locked until the end. Whatever goes wrong in between rolls back, and the rows are there for the
next claim, of this relay or of another: a message may then be sent twice, but never be lost.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outbox.table import TableName
from outbox_core.broker_errors import MessageRefusedError
from outbox_core.publisher import CONFIRMED, Message, Outcome, Publisher, Unencodable
from outbox_relay.hooks import Hooks, Relayed, tell
from outbox_relay.metrics import Metrics
from outbox_relay.queries import Queries
from outbox_relay.settings import IMMEDIATELY, Settings
from outbox_relay.settlement import (
    BackOff,
    Drop,
    Leave,
    Park,
    Sent,
    Settlement,
    Verdict,
    judge,
    judge_expired,
)
from outbox_relay.transaction import Transaction
from outbox_relay.wire import message_of

_SENT, _LEAVE = Sent(), Leave()

_LARGE_BODIES_BYTES = 16 * 1024 * 1024
"""How much of large bodies one batch may hold; a body beyond that goes alone."""


@dataclass(frozen=True, slots=True)
class Moved:
    """What a batch was."""

    rows: int
    """How many rows were claimed."""
    is_full: bool
    """There may be more to claim at once."""
    goes_on: bool
    """The next batch is begun, and has to follow at once."""
    last_key: str
    """The ordering key after which the next claim looks for keyed rows; empty for the first key."""
    has_keys: bool
    """Some rows had an ordering key, and the next of that key may be due."""


class Transfer:
    """Moves batches from one table to one exchange."""

    def __init__(self, settings: Settings, metrics: Metrics, hooks: Hooks) -> None:
        self._settings = settings
        self._policy = settings.policy
        self._queries = Queries(TableName.parse(settings.table_name))
        self._metrics = metrics
        self._hooks = hooks

    async def once(
        self,
        transaction: Transaction,
        publisher: Publisher,
        after_key: str = "",
        *,
        singly: bool = False,
        goes_on: Callable[[], bool] | None = None,
    ) -> Moved:
        """Move one batch; `singly`, to find the one message over which the broker closes the channel.

        `goes_on` is asked at the end whether another batch follows at once. The transaction of the next one
        is begun in the same round trip then, and also where one may follow soon.
        """
        started = time.perf_counter()
        connection = transaction.connection
        await transaction.begin()
        try:
            rows = await self._claim(connection, after_key)
            bodies = await self._bodies(connection, rows)
            verdicts = await self._publish(rows, bodies, publisher, singly) if rows else []
            script = await self._settle(connection, rows, verdicts)
            moved = self._moved(rows, goes_on)
            may_follow = goes_on is not None and not moved.has_keys
            await transaction.end(script, and_begin=moved.goes_on or may_follow)
        except BaseException:
            await transaction.roll_back()
            raise
        if rows:
            self._metrics.settled(time.perf_counter() - started)
            await self._report(rows, verdicts)
        return moved

    async def rehearse(self, connection: Any) -> None:
        """Settle nothing, so that asyncpg knows each statement and the types of its arguments.

        It asks the server for these in several steps, between which no limit on an idle transaction holds:
        a relay frozen there, with a batch claimed, would keep its rows.
        """
        for query, arguments in (
            (self._queries.bodies, 1),
            (self._queries.back_off, 3),
            (self._queries.park, 2),
        ):
            await connection.execute(query, *[[]] * arguments)

    async def _claim(self, connection: Any, after_key: str) -> Sequence[Any]:
        query = self._queries.claim_after if after_key else self._queries.claim_first
        rows: Sequence[Any] = await connection.fetch(query, self._settings.batch_size, after_key)
        return rows

    async def _bodies(self, connection: Any, rows: Sequence[Any]) -> dict[int, bytes]:
        """The bodies by id: those that came with the claim, and as many large ones as fit beside them."""
        bodies = {row["id"]: row["body"] for row in rows if row["body"] is not None}
        if len(bodies) == len(rows):
            return bodies
        large: list[int] = []
        room = _LARGE_BODIES_BYTES
        for row in rows:
            if row["body"] is None and row["size"] <= self._settings.max_message_size:
                room -= row["size"]
                if large and room < 0:
                    break
                large.append(row["id"])
        fetched = await connection.fetch(self._queries.bodies, large)
        return bodies | {row["id"]: row["body"] for row in fetched}

    async def _publish(
        self, rows: Sequence[Any], bodies: Mapping[int, bytes], publisher: Publisher, singly: bool
    ) -> list[Verdict]:
        self._metrics.claimed(len(rows))
        verdicts: list[Verdict] = [_LEAVE] * len(rows)
        messages: list[Message] = []
        places: list[int] = []
        for place, row in enumerate(rows):
            remaining = row["remaining"]
            if remaining is not None and remaining <= 0:
                verdicts[place] = judge_expired(self._policy)
                continue
            message = self._message(row, bodies)
            if message is None:
                continue
            if isinstance(message, Unencodable):
                verdicts[place] = judge(message, row["attempts"], self._policy)
            else:
                messages.append(message)
                places.append(place)
        send = self._one_by_one if singly else self._all_at_once
        for place, outcome in zip(places, await send(messages, publisher), strict=False):
            # Nearly all of them are, and need no judging.
            is_sent = outcome is CONFIRMED
            verdicts[place] = _SENT if is_sent else judge(outcome, rows[place]["attempts"], self._policy)
        return verdicts

    def _message(self, row: Any, bodies: Mapping[int, bytes]) -> Message | Unencodable | None:
        """The row's message, or None where its body has to wait for the next batch."""
        size, largest = row["size"], self._settings.max_message_size
        if size > largest:
            return Unencodable(f"the body is {size} bytes long and the broker takes {largest}")
        body = bodies.get(row["id"])
        return None if body is None else message_of(row, body, self._settings.expiration)

    async def _all_at_once(self, messages: Sequence[Message], publisher: Publisher) -> list[Outcome]:
        if not messages:
            return []
        started = time.perf_counter()
        outcomes = await publisher.publish(
            self._settings.exchange_name, messages, timeout=self._settings.publish_timeout
        )
        self._metrics.confirmed(time.perf_counter() - started)
        return outcomes

    async def _one_by_one(self, messages: Sequence[Message], publisher: Publisher) -> list[Outcome]:
        """The outcomes up to the message over which the channel closes; the rest is for the next channel."""
        outcomes: list[Outcome] = []
        for message in messages:
            try:
                outcomes += await self._all_at_once([message], publisher)
            except MessageRefusedError as error:
                return [*outcomes, Unencodable(str(error))]
        return outcomes

    async def _settle(self, connection: Any, rows: Sequence[Any], verdicts: Sequence[Verdict]) -> str:
        """Write what became of the rows that were not sent; the script that ends the batch does the rest."""
        settlement = Settlement.of([row["id"] for row in rows], verdicts)
        gone, marked = settlement.dropped, settlement.sent
        if self._settings.clean_up_after == IMMEDIATELY:
            gone, marked = gone + marked, []
        if settlement.delayed:
            await connection.execute(self._queries.back_off, *_columns(settlement.delayed))
        if settlement.parked:
            await connection.execute(self._queries.park, *_columns(settlement.parked))
        return self._queries.conclusion(gone, marked)

    async def _report(self, rows: Sequence[Any], verdicts: Sequence[Verdict]) -> None:
        """Tell metrics and hooks, now that it is committed."""
        pairs = list(zip(rows, verdicts, strict=True))
        self._metrics.published(row["age"] for row, verdict in pairs if isinstance(verdict, Sent))
        for row, verdict in pairs:
            match verdict:
                case Sent():
                    if self._hooks.on_published is not None:
                        await tell(self._hooks.on_published, _relayed(row))
                case Park(reason, error):
                    self._metrics.parked(reason)
                    self._metrics.failed("parked", reason)
                    await tell(self._hooks.on_parked, _relayed(row, error))
                case BackOff(reason, _, error):
                    self._metrics.failed("retried", reason)
                    await tell(self._hooks.on_error, _relayed(row, error))
                case Drop(reason):
                    self._metrics.dropped(reason)

    def _moved(self, rows: Sequence[Any], goes_on: Callable[[], bool] | None) -> Moved:
        size = self._settings.batch_size
        keys = [row["ordering_key"] for row in rows if row["ordering_key"] is not None]
        full_of_keys = len(keys) >= size
        is_full = full_of_keys or len(rows) - len(keys) >= size
        follows = is_full or (goes_on is not None and goes_on())
        return Moved(len(rows), is_full, follows, keys[-1] if full_of_keys else "", has_keys=bool(keys))


def _columns(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


def _relayed(row: Any, error: str | None = None) -> Relayed:
    return Relayed(row["message_id"], row["routing_key"], row["attempts"] + (error is not None), error)
