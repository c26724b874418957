"""The relay: lanes that move batches from the table to the broker, and what keeps them going."""

import asyncio
import logging
import socket
from functools import partial
from typing import Any

from outbox import schema
from outbox.message import Duration, expiration_seconds
from outbox.table import TableName
from outbox_core.broker import Broker, BrokerState
from outbox_core.database import Database
from outbox_core.health import Readiness
from outbox_core.listening import Listening
from outbox_core.plaintext import broker_warning, database_warning, is_plain
from outbox_core.signals import Shutdown
from outbox_core.starting import beside, broker_may_come, broker_reason, end, one_of, patiently
from outbox_relay.claims import Claims
from outbox_relay.errors import TableError
from outbox_relay.hooks import Hook, Hooks
from outbox_relay.lane import Lane
from outbox_relay.metrics import Metrics
from outbox_relay.queries import Queries
from outbox_relay.routes import Routes
from outbox_relay.settings import Settings
from outbox_relay.sweep import Sweep
from outbox_relay.transaction import Transaction
from outbox_relay.transfer import Transfer
from outbox_relay.unconfirmed import Unconfirmed
from outbox_relay.upkeep import Upkeep
from outbox_relay.wake import Wake
from outbox_relay.watch import Watch

_log = logging.getLogger("outbox.relay")

SESSION = {
    # For statements outside of a transaction; each transaction names its level.
    "default_transaction_isolation": "read committed",
    # A plan that Postgres made while the table was empty stays in use when it has a million rows.
    "enable_seqscan": "off",
}
"""The parameters of the relay's database sessions."""

_SHORTEST_LIMIT_SECONDS = 5.0
"""No statement has less time than this, however short `publish_timeout` is."""


class MessageRelay:
    """Moves committed messages from an outbox table to RabbitMQ."""

    def __init__(
        self,
        db_engine: Any = None,
        db_engine_url: str | None = None,
        rmq_connection: Any = None,
        rmq_connection_url: str | None = None,
        *,
        expiration: Duration | None = None,
        on_published: Hook | None = None,
        on_parked: Hook | None = None,
        on_error: Hook | None = None,
        settings: Settings | None = None,
        **options: Any,
    ) -> None:
        """Describe the relay; nothing is opened before `run`.

        The other arguments are the fields of `Settings`, unless `settings` has them all.
        """
        if settings is None:
            settings = Settings(expiration=expiration_seconds(expiration), **options)
        elif options or expiration is not None:
            raise TypeError("give settings=, or its fields as arguments, not both")
        self.settings = settings
        self._database_source = one_of(db_engine=db_engine, db_engine_url=db_engine_url)
        one_of(rmq_connection=rmq_connection, rmq_connection_url=rmq_connection_url)
        self._rmq_connection = rmq_connection
        self._rmq_url = rmq_connection_url
        self._table = TableName.parse(self.settings.table_name)
        self._queries = Queries(self._table)
        self._metrics = Metrics(self.settings.exchange_name, exposed=self.settings.enable_metrics)
        self._hooks = Hooks(on_published, on_parked, on_error)
        self._readiness = Readiness()
        self._readiness.add("start", lambda: "connecting")
        self._is_leaving = False

    async def run(self) -> None:
        """Relay until SIGTERM or SIGINT; the batches under way are finished first."""
        with Shutdown() as shutdown:
            await self.run_until(shutdown.requested)

    def unready_reason(self) -> str | None:
        """Why messages do not flow at the moment, or None where they do; for a readiness probe."""
        return "; ".join(self._readiness.failures()) or None

    async def run_until(self, stopping: asyncio.Event) -> None:
        """Relay until `stopping` is set; for applications that handle signals themselves."""
        database = self._database()
        await patiently(
            lambda: self._prepare_table(database),
            is_passing=database.is_passing,
            stopping=stopping,
            on_wait=self._wait,
        )
        broker = self._broker()
        try:
            await patiently(
                lambda: self._prepare_exchange(broker),
                is_passing=broker_may_come,
                stopping=stopping,
                on_wait=self._wait,
            )
            if not stopping.is_set():
                await self._relay(database, broker, stopping)
        finally:
            self._is_leaving = True
            await broker.aclose()

    async def _relay(self, database: Database, broker: Broker, stopping: asyncio.Event) -> None:
        wake, claims = Wake(), Claims()
        watch = Watch(self.settings, self._queries.look, claims, wake)
        listening = watch.listening = self._listening(database, watch)
        transfer, unconfirmed = self._transfer(database, wake, claims)
        sweep = Sweep(
            table=self._table,
            database=database,
            queries=self._queries,
            claims=claims,
            wake=wake,
            unswept=watch.unswept,
        )
        lanes = [
            self._lane(
                database=database,
                broker=broker,
                transfer=transfer,
                unconfirmed=unconfirmed,
                wake=wake,
                watch=watch,
                claims=claims,
                stopping=stopping,
            )
            for _ in range(self.settings.lanes)
        ]
        upkeep = Upkeep(
            self.settings,
            database,
            self._queries,
            self._metrics,
            lambda: transfer.settled,
            is_idle=watch.is_idle,
        )
        self._watch(broker, lanes, upkeep)
        helpers = [broker.run(), upkeep.run(), unconfirmed.run(), sweep.run()]
        if listening is not None:
            helpers += [listening.run(), watch.run()]
        async with beside(*helpers):
            await self._drive(lanes, wake, watch, stopping)

    async def run_once(self) -> int:
        """Move one batch, and tell how many rows it had; for tests and scripts."""
        database = self._database()
        await self._prepare_table(database)
        broker = self._broker()
        async with broker:
            await self._prepare_exchange(broker)
            connection = await database.connect("outbox-relay")
            publisher = await broker.publisher(max_message_size=self.settings.max_message_size)
            transfer, _ = self._transfer(database, Wake(), Claims())
            try:
                transaction = Transaction(connection)
                moved = await transfer.once(transaction, broker, publisher)
                # Keys that wait may come before those that can be claimed from.
                while moved.has_more and not moved.rows:
                    moved = await transfer.once(transaction, broker, publisher)
            finally:
                await publisher.aclose()
                await connection.close()
        return moved.rows

    def _wait(self, reason: str, failures: int) -> None:
        if failures == 1:
            _log.warning(reason)
        self._readiness.add("start", partial(str, reason))

    async def _drive(self, lanes: list[Lane], wake: Wake, watch: Watch, stopping: asyncio.Event) -> None:
        """Run the lanes, and give them their time to finish when they are asked to stop."""
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(lane.run()) for lane in lanes]
            await stopping.wait()
            _log.info("stopping: finishing the batches under way")
            wake.up_all()
            await watch.leave()
            _, late = await asyncio.wait(running, timeout=self.settings.shutdown_timeout)
            if late:
                _log.warning("%d lanes did not finish in time; their batches are rolled back", len(late))
            await end(late)

    async def _prepare_table(self, database: Database) -> None:
        """Create or check the table, since a relay on a wrong one would do nothing for ever."""
        connection = await database.connect("outbox-relay")
        has_no_tls = is_plain(connection)
        notifies = self.settings.notifies
        try:
            async with connection.transaction(isolation="read_committed"):
                if self.settings.auto_create_table:
                    await schema.create(connection, self._table, self.settings.channel, notify=notifies)
                problems = await schema.check(connection, self._table, self.settings.channel, notify=notifies)
        finally:
            await connection.close()
        if stopping := [str(problem) for problem in problems if problem.stops_relay]:
            raise TableError("; ".join(stopping))
        for problem in problems:
            _log.warning("%s", problem)
        if has_no_tls:
            _log.warning(database_warning(database.where))

    def _database(self) -> Database:
        longest_seconds = max(_SHORTEST_LIMIT_SECONDS, self.settings.publish_timeout)
        return Database(self._database_source, session=SESSION, statement_seconds=longest_seconds)

    def _broker(self) -> Broker:
        return Broker(
            self._rmq_url,
            connection=self._rmq_connection,
            name=f"outbox-relay@{socket.gethostname()}",
            on_change=self._broker_changed,
        )

    async def _prepare_exchange(self, broker: Broker) -> None:
        await broker.connect_once()
        if self.settings.provisioned:
            await broker.check(self.settings.topology)
        else:
            await broker.declare(self.settings.topology)
        if broker.plain_hosts:
            _log.warning(broker_warning(str(broker.address)))

    def _listening(self, database: Database, watch: Watch) -> Listening | None:
        if not (self.settings.listen and self.settings.notifies):
            return None
        return Listening(
            database,
            watch.heard,
            on_control=watch.controlled,
            on_change=watch.changed,
            table=self._table,
            channel=self.settings.channel,
            name="outbox-relay-listen",
            poll_seconds=self.settings.poll_interval,
        )

    def _transfer(self, database: Database, wake: Wake, claims: Claims) -> tuple[Transfer, Unconfirmed]:
        routes = Routes(self.settings.backoff_initial, self.settings.backoff_maximum)
        unconfirmed = Unconfirmed(
            settings=self.settings,
            database=database,
            queries=self._queries,
            routes=routes,
            metrics=self._metrics,
            hooks=self._hooks,
            on_change=partial(wake.up, "more"),
        )
        transfer = Transfer(
            settings=self.settings,
            queries=self._queries,
            metrics=self._metrics,
            hooks=self._hooks,
            routes=routes,
            unconfirmed=unconfirmed,
            claims=claims,
        )
        return transfer, unconfirmed

    def _lane(
        self,
        *,
        database: Database,
        broker: Broker,
        transfer: Transfer,
        unconfirmed: Unconfirmed,
        wake: Wake,
        watch: Watch,
        claims: Claims,
        stopping: asyncio.Event,
    ) -> Lane:
        return Lane(
            settings=self.settings,
            database=database,
            broker=broker,
            transfer=transfer,
            queries=self._queries,
            unconfirmed=unconfirmed,
            wake=wake,
            watch=watch,
            claims=claims,
            metrics=self._metrics,
            stopping=stopping,
        )

    def _watch(self, broker: Broker, lanes: list[Lane], upkeep: Upkeep) -> None:
        """Let `/readyz` tell of what is away."""
        self._readiness.add("broker", lambda: broker_reason(broker.state))
        self._readiness.add(
            "database", lambda: None if any(lane.is_connected for lane in lanes) else "not connected"
        )
        self._readiness.add("lanes", lambda: _common_problem(lanes))
        self._readiness.add("progress", lambda: upkeep.problem)
        # Last: another thread asks, and must not find nothing at all to complain of.
        self._readiness.add("start", lambda: None)

    def _broker_changed(self, state: BrokerState) -> None:
        if self._is_leaving:
            return
        self._metrics.blocked(state.blocked_reason is not None)
        reason = broker_reason(state)
        if reason is None:
            _log.info("the broker is ready")
        else:
            _log.warning("nothing is claimed meanwhile: the broker is %s", reason)


def _common_problem(lanes: list[Lane]) -> str | None:
    """What keeps every lane from moving anything."""
    problems = [lane.problem for lane in lanes]
    return problems[0] if all(problems) else None
