"""One batch: claim it, publish it, settle it, in one transaction of one connection.

The rows stay locked until the end. Whatever goes wrong in between rolls back, and the rows are there for the
next claim, of this relay or of another: a message may then be sent twice, but never be lost.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from outbox.table import TableName
from outbox_core.broker import Broker
from outbox_core.publisher import Publisher
from outbox_relay.claims import Claim, Claims
from outbox_relay.dispatch import Dispatch, Dispatched, key_of, relayed_of
from outbox_relay.errors import ForeignRowsError
from outbox_relay.hooks import Hooks, tell
from outbox_relay.metrics import Metrics
from outbox_relay.queries import Key, Queries
from outbox_relay.routes import Routes
from outbox_relay.settings import IMMEDIATELY, Settings
from outbox_relay.settlement import BackOff, Drop, Leave, Park, Sent, Settlement, Verdict
from outbox_relay.transaction import Transaction
from outbox_relay.unconfirmed import Unconfirmed

_NOTHING = Dispatched([])

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
    has_more: bool
    """Something is known that can be claimed at once, such as the next row of an ordering key."""
    unanswered: int = 0
    """How many messages were sent and not confirmed in time."""
    is_cut_short: bool = False
    """Messages that were to be sent one by one are left."""
    is_refused: bool = False
    """A queue has refused some of them."""


class Transfer:
    """Moves batches from one table to one exchange."""

    def __init__(
        self,
        *,
        settings: Settings,
        queries: Queries,
        metrics: Metrics,
        hooks: Hooks,
        routes: Routes,
        unconfirmed: Unconfirmed,
        claims: Claims,
    ) -> None:
        self._settings = settings
        self._claims = claims
        self._dispatch = Dispatch(settings, metrics, routes, unconfirmed)
        self._unconfirmed = unconfirmed
        self.settled = 0
        """How many rows were sent, parked, dropped or put off."""
        self._table = TableName.parse(settings.table_name)
        self._queries = queries
        self._partitions: frozenset[int] = frozenset()
        self._metrics = metrics
        self._hooks = hooks

    async def once(
        self,
        transaction: Transaction,
        broker: Broker,
        publisher: Publisher,
        *,
        singly: bool = False,
        goes_on: Callable[[], bool] | None = None,
    ) -> Moved:
        """Move one batch; `singly`, to find the one message over which the broker closes the channel.

        `goes_on` is asked at the end whether another batch follows at once. The transaction of the next one
        is begun in the same round trip then, and also where one may follow soon. If the channel is lost in
        the middle, what was confirmed until then is settled before the `BrokerLostError` is raised.
        """
        started = time.perf_counter()
        await transaction.begin()
        claim = self._claims.begin(self._settings.batch_size)
        try:
            rows = await self._claim(transaction.connection, claim)
            if not rows and goes_on is not None:
                # The transaction has done nothing, and will do for the next claim.
                done, follows = _NOTHING, goes_on()
            else:
                done, follows = await self._send(transaction, rows, broker, publisher, goes_on, singly=singly)
        except BaseException:
            await transaction.roll_back()
            raise
        finally:
            self._claims.ended(claim)
        self.settled += sum(not isinstance(verdict, Leave) for verdict in done.verdicts)
        self._unconfirmed.add(done.leased)
        if rows:
            self._metrics.settled(time.perf_counter() - started)
            await self._report(rows, done.verdicts)
        if done.lost is not None:
            raise done.lost
        return Moved(
            len(rows),
            self._is_full(rows),
            follows,
            has_more=self._claims.has_more,
            unanswered=done.unanswered,
            is_cut_short=done.is_cut_short,
            is_refused=done.is_refused,
        )

    async def _send(
        self,
        transaction: Transaction,
        rows: Sequence[Any],
        broker: Broker,
        publisher: Publisher,
        goes_on: Callable[[], bool] | None,
        *,
        singly: bool,
    ) -> tuple[Dispatched, bool]:
        """Publish and settle the claimed rows; also returns whether the next batch has to follow at once."""
        connection = transaction.connection
        bodies = await self._bodies(connection, rows)
        done = await self._dispatch.send(rows, bodies, broker, publisher, singly=singly) if rows else _NOTHING
        script = await self._settle(connection, rows, done.verdicts)
        follows = self._is_full(rows) or (goes_on is not None and goes_on())
        has_keys = any(row["ordering_key"] is not None for row in rows)
        may_follow = goes_on is not None and not has_keys
        await transaction.end(script, and_begin=(follows or may_follow) and done.lost is None)
        return done, follows

    async def rehearse(self, connection: Any) -> None:
        """Settle nothing, so that asyncpg knows each statement and the types of its arguments.

        It asks the server for these in several steps, between which no limit on an idle transaction holds:
        a relay frozen there, with a batch claimed, would keep its rows.
        """
        for query, arguments in (
            (self._queries.bodies, 1),
            (self._queries.back_off, 5),
            (self._queries.park, 3),
        ):
            await connection.execute(query, *[[]] * arguments)
        await self.read_partitions(connection)

    async def _claim(self, connection: Any, claim: Claim) -> Sequence[Any]:
        rows: Sequence[Any]
        *rows, last = await connection.fetch(self._queries.claim, *claim.arguments)
        found = {row["partition"] for row in rows}
        if not found <= self._partitions:
            # Partitions are added while the relay runs.
            await self.read_partitions(connection)
        if not found <= self._partitions:
            raise ForeignRowsError(
                f"table {self._table}: a claim has returned rows of another table, which are left alone; "
                "a pooler may mix up the sessions of its clients: connect the relay to the server directly"
            )
        keyed = [(row["ordering_key"], row["id"]) for row in rows if row["ordering_key"] is not None]
        self._claims.found(claim, last["report"], keyed)
        return rows

    async def read_partitions(self, connection: Any) -> None:
        """Learn which partitions the table has, so that no claim asks while it holds rows."""
        rows = await connection.fetch(self._queries.partitions, self._table.sql)
        self._partitions = frozenset(row["partition"] for row in rows)

    async def _bodies(self, connection: Any, rows: Sequence[Any]) -> dict[Key, bytes]:
        """The bodies by key: those that came with the claim, and as many large ones as fit beside them."""
        bodies = {key_of(row): row["body"] for row in rows if row["body"] is not None}
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
        return bodies | {key_of(row): row["body"] for row in fetched}

    async def _settle(self, connection: Any, rows: Sequence[Any], verdicts: Sequence[Verdict]) -> str:
        """Write what became of the rows that were not sent; the script that ends the batch does the rest."""
        settlement = Settlement.of([key_of(row) for row in rows], verdicts)
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
                        await tell(self._hooks.on_published, relayed_of(row))
                case Park(reason, error):
                    self._metrics.parked(reason)
                    self._metrics.failed("parked", reason)
                    await tell(self._hooks.on_parked, relayed_of(row, error))
                case BackOff(reason, _, error):
                    self._metrics.failed("retried", reason)
                    await tell(self._hooks.on_error, relayed_of(row, error))
                case Drop(reason):
                    self._metrics.dropped(reason)

    def _is_full(self, rows: Sequence[Any]) -> bool:
        """True if as many rows of one kind were claimed as a batch may have, so that there may be more."""
        size = self._settings.batch_size
        keyed = sum(row["ordering_key"] is not None for row in rows)
        return keyed >= size or len(rows) - keyed >= size


def _columns(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]
