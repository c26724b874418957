"""A lane: one database connection and one channel, on which batches follow each other."""

import asyncio
import logging
import time
from typing import Any

from outbox_core.backoff import Backoff
from outbox_core.broker import Aside, Broker
from outbox_core.broker_errors import BrokerLostError, ConnectError, ExchangeMissingError, MessageRefusedError
from outbox_core.database import Database
from outbox_core.publisher import Publisher
from outbox_relay.claims import Claims
from outbox_relay.errors import ForeignRowsError
from outbox_relay.metrics import Metrics
from outbox_relay.queries import Queries
from outbox_relay.settings import Settings
from outbox_relay.transaction import BEGIN, Transaction
from outbox_relay.transfer import Moved, Transfer
from outbox_relay.unconfirmed import Unconfirmed
from outbox_relay.wake import Wake
from outbox_relay.watch import Watch

_log = logging.getLogger("outbox.relay")

_MOST_UNANSWERED = 16
"""How many messages without an answer a connection may have. After 32 of one quorum queue RabbitMQ stops to
read from it."""

_RECONNECT = Backoff(0.1, 2.0)

_RENEWAL_SECONDS = 1.0
"""How often a lane takes a new channel while a queue refuses messages."""

_MARGIN_SECONDS = 5.0
"""How much longer than a batch may take the server waits for a lane before it frees the rows."""

# The process may be frozen, or its machine be gone, in the middle of a batch: while the server waits for its
# next statement, or for it to read the rows. Of each transaction, not once of the session: a pooler may give
# the next one another session, and this one with its settings to others; nobody tells that there is a pooler.
_OPENING = (
    f"{BEGIN}; SET LOCAL idle_in_transaction_session_timeout = {{ms}}; SET LOCAL tcp_user_timeout = {{ms}}"
)


class Lane:
    """Claims, publishes and settles until it is asked to stop; an outage ends only what was under way."""

    def __init__(
        self,
        *,
        settings: Settings,
        database: Database,
        broker: Broker,
        transfer: Transfer,
        queries: Queries,
        unconfirmed: Unconfirmed,
        wake: Wake,
        watch: Watch,
        claims: Claims,
        metrics: Metrics,
        stopping: asyncio.Event,
    ) -> None:
        self._settings = settings
        self._database = database
        self._broker = broker
        self._transfer = transfer
        self._queries = queries
        self._unconfirmed = unconfirmed
        self._wake = wake
        self._watch = watch
        self._claims = claims
        self._metrics = metrics
        self._stopping = stopping
        self._opening = _OPENING.format(ms=round((settings.publish_timeout + _MARGIN_SECONDS) * 1000))
        self._transaction: Transaction | None = None
        self._publisher: Publisher | None = None
        self._failures = 0
        self._singly = False
        self._renewed_at = 0.0
        self.problem: str | None = None
        """Why the last batch failed; None where it did not."""

    @property
    def is_connected(self) -> bool:
        """Whether the lane has a connection to the database."""
        return self._transaction is not None and not self._transaction.connection.is_closed()

    async def run(self) -> None:
        """Move batches until asked to stop."""
        try:
            while not self._stopping.is_set():
                moved = await self._move()
                if moved is None:
                    continue
                await self._watch.claimed(moved.rows, is_full=moved.is_full)
                if moved.is_full:
                    self._wake.up("more")
                elif not moved.goes_on and not moved.has_more:
                    await self._rest()
        finally:
            await self._disconnect()

    async def _move(self) -> Moved | None:
        """One batch, or None after a failure that time will heal."""
        try:
            if not await self._broker_is_ready():
                return None
            transaction = await self._connected()
            publisher = await self._publishing()
            await transaction.begin()
            self._wake.arrived()
            self._watch.looks()
            moved = await self._transfer.once(
                transaction, self._broker, publisher, singly=self._singly, goes_on=self._is_woken
            )
            if moved.unanswered:
                await self._leave(publisher, moved.unanswered)
            elif moved.is_refused:
                await self._renew(publisher)
        except MessageRefusedError as error:
            _log.warning("the broker refuses a message of a batch, which is sent one by one now: %s", error)
            self._singly = True
            return None
        except ExchangeMissingError as error:
            await self._exchange_missing(error)
            return None
        except BrokerLostError as error:
            await self._broker_lost(error)
            return None
        except Exception as error:
            if isinstance(error, ForeignRowsError):
                _log.error("%s", error)
                self._database.assume_pooler()
            elif not self._database.is_passing(error):
                raise
            await self._database_lost(error)
            return None
        self._failures = 0
        self.problem = None
        # Otherwise the batch with the message in question is through: it was parked, or another relay has it.
        self._singly = moved.is_cut_short
        return moved

    async def _broker_is_ready(self) -> bool:
        """Wait for a broker that takes messages: nothing is claimed meanwhile. False when asked to stop."""
        if self._broker.is_connected and not self._broker.is_blocked:
            return True
        if self._transaction is not None:
            await self._transaction.roll_back()
        waits = [asyncio.create_task(self._broker.wait_ready()), asyncio.create_task(self._stopping.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return not self._stopping.is_set()

    async def _rest(self) -> None:
        """Sleep until there may be something to claim."""
        if not self._stopping.is_set():
            self._metrics.woke(await self._watch.reason(self._look, self._roll_back))

    def _is_woken(self) -> bool:
        """Whether there is a reason to look at the table again at once; it is this lane's then."""
        if self._stopping.is_set() or (reason := self._wake.take()) is None:
            return False
        self._metrics.woke(reason)
        return True

    async def _look(self) -> Any:
        """Whether something is due, and when the next message is; None if the database is lost."""
        try:
            # A sleep may be long, and a transaction must not be.
            await self._roll_back()
            return await self._looked()
        except Exception as error:
            if not self._database.is_passing(error):
                raise
            await self._database_lost(error)
            return None

    async def _looked(self) -> Any:
        transaction = await self._connected()
        connection = transaction.connection
        if not self._database.pooled:
            return await connection.fetchrow(self._queries.look, *self._claims.positions())
        # Outside of a transaction a pooler may give each step of a statement another session.
        async with connection.transaction(isolation="read_committed"):
            return await connection.fetchrow(self._queries.look, *self._claims.positions())

    async def _roll_back(self) -> None:
        if self._transaction is not None:
            await self._transaction.roll_back()

    async def _connected(self) -> Transaction:
        if self._transaction is None or not self.is_connected:
            connection = await self._database.connect("outbox-relay")
            # A lane that sleeps would not notice, and not be there when it is needed.
            connection.add_termination_listener(lambda _: self._wake.up("lost"))
            self._transaction = Transaction(connection, self._opening)
            if self._database.pooled:
                async with connection.transaction(isolation="read_committed"):
                    await self._transfer.read_partitions(connection)
            else:
                await self._transfer.rehearse(connection)
        return self._transaction

    async def _publishing(self) -> Publisher:
        publisher = self._publisher
        if publisher is None or not publisher.is_usable or not self._broker.carries(publisher):
            publisher = await self._broker.publisher(max_message_size=self._settings.max_message_size)
            self._publisher = publisher
        return publisher

    async def _renew(self, publisher: Publisher) -> None:
        """Go on by a new channel after a refusal, now and then.

        After the loss of a node, RabbitMQ 3.10 may refuse all that an old channel sends to a quorum queue,
        though the queue has a leader again.
        """
        if time.monotonic() - self._renewed_at >= _RENEWAL_SECONDS:
            self._renewed_at = time.monotonic()
            self._publisher = None
            await publisher.aclose()

    async def _leave(self, publisher: Publisher, unanswered: int) -> None:
        """Go on by a new channel, and leave this one to late confirms: a queue may keep it from all others.

        With many messages on it, go on by a new connection: the broker may not be reading from this one.
        """
        self._publisher = None
        aside: Aside | None = None
        # Under an alarm the broker reads from no connection; a new one would only not know it yet.
        if unanswered > _MOST_UNANSWERED and not self._broker.is_blocked:
            try:
                aside = await self._broker.set_aside(publisher)
            except ConnectError as error:
                _log.warning("no second connection to the broker: %s", error)
        await self._unconfirmed.keep(aside or publisher)

    async def _exchange_missing(self, error: ExchangeMissingError) -> None:
        await self._broker_lost(error)
        if self._settings.provisioned:
            return
        try:
            await self._broker.declare(self._settings.topology)
        except BrokerLostError as failure:
            _log.warning("the exchange could not be declared again: %s", failure)

    async def _broker_lost(self, error: BrokerLostError) -> None:
        self.problem = str(error)
        self._metrics.failed("broker", type(error).__name__)
        _log.warning("a batch could not be published and is rolled back: %s", error)
        publisher, self._publisher = self._publisher, None
        if publisher is not None:
            await publisher.aclose()
        await self._pause()

    async def _database_lost(self, error: Exception) -> None:
        reason = self.problem = str(error) or "no answer in time"
        self._metrics.failed("database", type(error).__name__)
        _log.warning("lost %s: %s", self._database.where, reason)
        # The next one may be to another server, with another clock.
        self._claims.reset()
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            transaction.connection.terminate()
        await self._pause()

    async def _pause(self) -> None:
        # A batch that fails each time must not spin.
        self._failures += 1
        await asyncio.sleep(_RECONNECT.delay(self._failures))

    async def _disconnect(self) -> None:
        if self._publisher is not None:
            await self._publisher.aclose()
        if self._transaction is not None:
            await self._transaction.close()
