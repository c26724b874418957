"""A relay at work: a table, a broker, and ledgers of what was emitted and what arrived."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import aio_pika
import asyncpg
import pytest
from aio_pika.abc import AbstractChannel, AbstractExchange, AbstractIncomingMessage, AbstractQueue
from prometheus_client import REGISTRY

from outbox import Emitter, MessageRelay, OutboxMessage, schema

DEADLINE_SECONDS = 60
"""A busy machine may take long; nothing but a failure waits for all of it."""

FULL = {"x-max-length": 1, "x-overflow": "reject-publish"}
"""The arguments of a queue that refuses its second message."""

ONLY_WOKEN: Mapping[str, Any] = {"notification_timeout": 300, "poll_interval": 300}
"""Settings of a relay that does not look at the table by the clock, within the time of a test."""

_QUICK: Mapping[str, Any] = {"backoff_initial": 0.05, "backoff_maximum": 0.2, "poll_interval": 0.2}
"""Tests wait for retries, not for minutes."""


async def until(condition: Callable[[], bool | Awaitable[bool]], what: str | Callable[[], str]) -> None:
    """Poll until the condition holds, or fail with what was awaited."""
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not await _holds(condition):
                await asyncio.sleep(0.01)
    except TimeoutError:
        pytest.fail(f"waited {DEADLINE_SECONDS} s for {what if isinstance(what, str) else what()}")


async def _holds(condition: Callable[[], bool | Awaitable[bool]]) -> bool:
    answer = condition()
    return answer if isinstance(answer, bool) else await answer


@dataclass
class Inbox:
    """A queue, and the ledger of what was consumed from it."""

    queue: AbstractQueue
    until: Callable[[Callable[[], bool], str], Awaitable[None]]
    """Polls for as long as the relays live."""
    messages: list[AbstractIncomingMessage] = field(default_factory=list)

    async def open(self) -> None:
        """Begin to consume."""
        await self.queue.consume(self._receive, no_ack=True)

    async def _receive(self, message: AbstractIncomingMessage) -> None:
        self.messages.append(message)

    @property
    def ids(self) -> list[str]:
        """The ids of what arrived, in that order."""
        return [message.message_id or "" for message in self.messages]

    async def gets(self, ids: Iterable[str]) -> None:
        """Wait until all of these have arrived."""
        wanted = set(ids)

        def missing() -> set[str]:
            return wanted.difference(self.ids)

        await self.until(lambda: not missing(), f"{len(wanted)} messages in {self.queue.name}")

    async def get(self, message_id: str) -> AbstractIncomingMessage:
        """Wait for one message."""
        await self.gets([message_id])
        return next(message for message in self.messages if message.message_id == message_id)


@dataclass
class Running:
    """A relay in a task of its own."""

    relay: MessageRelay
    stopping: asyncio.Event
    task: asyncio.Task[None]

    async def stop(self) -> None:
        """Ask it to stop, and wait until it has; raises what it failed with."""
        self.stopping.set()
        async with asyncio.timeout(DEADLINE_SECONDS):
            await self.task


class Traffic:
    """One application's table and exchange, with the relays between them."""

    def __init__(
        self, postgres_url: str, rabbitmq_url: str, database: asyncpg.Connection, channel: AbstractChannel
    ) -> None:
        self.postgres_url = postgres_url
        self.rabbitmq_url = rabbitmq_url
        self.database = database
        """A session of the application, which looks at and changes the table as it likes."""
        self.channel = channel
        # Of its own for each test, so that metrics with this label are of this test only.
        self.exchange_name = f"outbox-{uuid.uuid4().hex[:8]}"
        self.exchange: AbstractExchange
        self._emitter = Emitter()
        self._running: list[Running] = []

    # -- the application's side

    async def emit(self, routing_key: str, body: Any = None, **options: Any) -> str:
        """Emit in a transaction of its own; tells the message's id."""
        async with self.database.transaction():
            return str(await self._emitter.emit(self.database, routing_key, body, **options))

    async def emit_all(self, messages: Sequence[OutboxMessage]) -> list[str]:
        """Emit all in one transaction."""
        async with self.database.transaction():
            return [str(message_id) for message_id in await self._emitter.bulk_emit(self.database, messages)]

    async def emit_many(self, count: int, routing_key: str = "a", **options: Any) -> list[str]:
        """Emit so many messages with their number as body."""
        return await self.emit_all([OutboxMessage(routing_key, n, **options) for n in range(count)])

    async def insert(self, **columns: str) -> str:
        """Write a row by hand, each column an SQL expression; tells the message's id."""
        given = {"routing_key": "'a'", "body": "'1'", **columns}
        message_id: uuid.UUID = await self.database.fetchval(
            f"INSERT INTO outbox_table ({', '.join(given)}) VALUES ({', '.join(given.values())}) "
            "RETURNING message_id"
        )
        return str(message_id)

    async def row(self, message_id: str) -> asyncpg.Record | None:
        return await self.database.fetchrow("SELECT * FROM outbox_table WHERE message_id = $1", message_id)

    async def ids(self, condition: str = "true") -> list[str]:
        """The ids of rows in the table."""
        rows = await self.database.fetch(f"SELECT message_id FROM outbox_table WHERE {condition} ORDER BY id")
        return [str(row["message_id"]) for row in rows]

    # -- the broker's side

    async def inbox(
        self,
        *binding_keys: str,
        arguments: dict[str, Any] | None = None,
        is_open: bool = True,
        durable: bool = False,
    ) -> Inbox:
        """A queue with these bindings, consumed from at once or when it is opened."""
        name = f"queue-{uuid.uuid4().hex[:8]}"
        queue = await self.channel.declare_queue(name, arguments=arguments, durable=durable)
        for key in binding_keys:
            await queue.bind(self.exchange, key)
        inbox = Inbox(queue, self.until)
        if is_open:
            await inbox.open()
        return inbox

    # -- relays

    def relay(self, **options: Any) -> MessageRelay:
        """A relay that is not running yet."""
        given = {
            "db_engine_url": self.postgres_url,
            "rmq_connection_url": self.rabbitmq_url,
            "exchange_name": self.exchange_name,
        }
        return MessageRelay(**{**given, **_QUICK, **options})

    async def start(self, relay: MessageRelay) -> Running:
        """Run a relay until it is stopped, or the test ends."""
        stopping = asyncio.Event()
        running = Running(relay, stopping, asyncio.create_task(relay.run_until(stopping)))
        self._running.append(running)
        return running

    async def relaying(self, **options: Any) -> Running:
        """A relay with these settings, through which messages flow."""
        running = await self.start(self.relay(**options))
        await self.until(lambda: running.relay.unready_reason() is None, "the relay to be ready")
        return running

    async def until(self, condition: Callable[[], bool | Awaitable[bool]], what: str) -> None:
        """Poll until the condition holds; a relay that fails meanwhile fails the test with its own error."""

        async def holds() -> bool:
            for running in self._running:
                if running.task.done():
                    running.task.result()
            return await _holds(condition)

        await until(holds, what)

    async def until_table(self, condition: str, what: str) -> None:
        """Poll until an SQL condition holds."""

        async def holds() -> bool:
            return bool(await self.database.fetchval(f"SELECT {condition}"))

        await self.until(holds, what)

    async def until_ids(self, expected: Iterable[str], condition: str = "true") -> None:
        """Wait until the rows that fulfil an SQL condition are these.

        The broker has a message before the relay has committed that it does.
        """
        wanted = sorted(expected)

        async def holds() -> bool:
            return sorted(await self.ids(condition)) == wanted

        await self.until(holds, f"{len(wanted)} rows where {condition}")

    async def until_parked(self, message_id: str) -> str:
        """Wait until the message is given up; tells the reason in its row."""
        await self.until_ids([message_id], f"message_id = '{message_id}' AND parked_at IS NOT NULL")
        row = await self.row(message_id)
        assert row is not None
        return str(row["last_error"])

    async def until_asleep(self, lanes: int = 2) -> None:
        """Wait until no lane of one relay has a transaction, and the one that watches has looked last."""
        await self.until_table(
            f"""(
                SELECT count(*) = {lanes} AND bool_or(query LIKE '%-- Whether something is due%')
                FROM pg_stat_activity
                WHERE datname = current_database() AND application_name = 'outbox-relay' AND state = 'idle'
            )""",
            "the lanes to sleep",
        )

    async def until_it_notifies(self) -> None:
        """Wait until a relay sleeps in such a way that whoever emits notifies."""
        await self.until_table(
            f"""EXISTS (
                SELECT FROM pg_locks
                WHERE locktype = 'advisory' AND classid = {schema.ASLEEP_LOCK}
                    AND granted AND mode = 'ExclusiveLock' AND objid = 'outbox_table'::regclass
            )""",
            "a relay that sleeps",
        )

    def metric(self, name: str, **labels: str) -> float:
        """The value of a metric of this exchange, 0 where it was never touched."""
        return REGISTRY.get_sample_value(name, {"exchange_name": self.exchange_name, **labels}) or 0.0

    async def until_metric(self, at_least: float, name: str, **labels: str) -> None:
        """Wait until so many are counted, which is after the commit."""
        await self.until(lambda: self.metric(name, **labels) >= at_least, f"{name} to be {at_least:g}")

    async def stop_all(self) -> None:
        for running in self._running:
            if not running.task.done():
                await running.stop()


@contextlib.asynccontextmanager
async def traffic_between(postgres_url: str, rabbitmq_url: str) -> AsyncIterator[Traffic]:
    """A fresh table and exchange; what is running when the block ends is stopped."""
    database = await asyncpg.connect(postgres_url)
    await schema.create(database)
    connection = await aio_pika.connect(rabbitmq_url)
    channel = await connection.channel()
    traffic = Traffic(postgres_url, rabbitmq_url, database, channel)
    traffic.exchange = await channel.declare_exchange(traffic.exchange_name, "topic", durable=True)
    try:
        yield traffic
    finally:
        await traffic.stop_all()
        await connection.close()
        await database.close()
