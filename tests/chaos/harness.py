"""The cast of a chaos test: relays, an application that emits, and a consumer that keeps the ledger."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlsplit
from uuid import UUID, uuid4

import aio_pika
import asyncpg
from aio_pika.abc import AbstractIncomingMessage

from outbox import Emitter, OutboxMessage, schema
from outbox_cli.local import Services
from outbox_cli.local.ports import free_ports
from tests.chaos.ledger import Arrival, Ledger
from tests.integration.administrator import management

EXCHANGE = "outbox"
QUEUE = "arrivals"
DEADLINE_SECONDS = 60.0
_POLL_SECONDS = 0.01
_HTTP_SECONDS = 30.0
_TRICKLE_SECONDS = 0.2
_ACK_SECONDS = 0.05
_PREFETCH = 1000
_QUORUM: dict[str, Any] = {"x-queue-type": "quorum"}
_LOST = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)


async def eventually(what: str, holds: Callable[[], Awaitable[bool]]) -> float:
    """Poll until it holds, and tell how many seconds that took; fail with what was awaited otherwise."""
    started = time.monotonic()
    while not await holds():
        waited = time.monotonic() - started
        assert waited < DEADLINE_SECONDS, f"still waiting after {DEADLINE_SECONDS:g} s until {what}"
        await asyncio.sleep(_POLL_SECONDS)
    return time.monotonic() - started


class RelayProcess:
    """`python -m outbox_relay`, in a process of its own."""

    def __init__(self, environment: Mapping[str, str], log: Path) -> None:
        (self.port,) = free_ports(1)
        self._log = log
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("OUTBOX_")}
        with log.open("wb") as output:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "outbox_relay"],
                env={**inherited, **environment, "OUTBOX_PROBE_PORT": str(self.port)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def is_running(self) -> bool:
        return self._child.poll() is None

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def send(self, sign: signal.Signals) -> None:
        """Send a signal; the process is a child that was not waited for, so the pid is still its own."""
        self._child.send_signal(sign)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._child.kill()
        self._child.wait()

    def client_ports(self) -> list[int]:
        """The local ports of its connections: what `pg_stat_activity` knows it by."""
        inodes = _sockets(self._child.pid)
        lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return [int(line[1].partition(":")[2], 16) for line in lines if line[9] in inodes]

    async def ended(self) -> int:
        """Wait until it ends by itself; its exit status."""

        async def is_over() -> bool:
            return not self.is_running

        await eventually("the relay has ended", is_over)
        return self._child.returncode

    async def terminate(self) -> int:
        """SIGTERM, and wait; its exit status."""
        self.send(signal.SIGTERM)
        return await self.ended()

    async def unready_reason(self) -> str | None:
        """What /readyz says, None where it is ready."""
        return await asyncio.to_thread(self._readyz)

    async def ready(self) -> float:
        """Wait until /readyz says so; how many seconds that took."""

        async def is_ready() -> bool:
            assert self.is_running, f"the relay has ended by itself:\n{self.log}"
            return await self.unready_reason() is None

        return await eventually("the relay is ready", is_ready)

    async def unready(self, words: str) -> str:
        """Wait until /readyz says that it is not, in these words; all that it says."""
        said: list[str] = []

        async def is_unready() -> bool:
            said.append(await self.unready_reason() or "")
            return words in said[-1]

        await eventually(f"/readyz says {words!r}", is_unready)
        return said[-1]

    def _readyz(self) -> str | None:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=_HTTP_SECONDS)
        try:
            connection.request("GET", "/readyz")
            answer = connection.getresponse()
            text = answer.read().decode()
        except (OSError, HTTPException):
            return "no answer"
        finally:
            connection.close()
        return None if answer.status == 200 else text


class Application:
    """Writes orders, each with its message in the same transaction, and rolls every fifth one back.

    The orders are the truth about a COMMIT that was not answered: where the order is, its message comes.
    """

    def __init__(
        self,
        url: str,
        ledger: Ledger,
        *,
        keys: int = 0,
        routing_keys: Sequence[str] = ("order.placed",),
        body_size: int = 0,
        transaction_size: int = 10,
    ) -> None:
        """With `keys`, that many ordering keys take turns, and so do the routing keys."""
        self._url = url
        self._ledger = ledger
        self._keys = [f"key-{number:02}" for number in range(keys)]
        self._routing_keys = routing_keys
        self._padding = "." * body_size
        self._transaction_size = transaction_size
        self._emitter = Emitter()
        self._turn = 0

    async def run(self, stop: asyncio.Event, limit: int, pause_seconds: float) -> None:
        """Emit until asked to stop, whatever becomes of the database; after `limit` messages a trickle."""
        while not stop.is_set():
            with suppress(*_LOST):
                connection = await asyncpg.connect(self._url, timeout=5)
                try:
                    while not stop.is_set():
                        await self.transact(connection)
                        is_enough = len(self._ledger.committed) >= limit
                        await asyncio.sleep(_TRICKLE_SECONDS if is_enough else pause_seconds)
                finally:
                    connection.terminate()
            await asyncio.sleep(_POLL_SECONDS)

    async def emit(self, count: int) -> None:
        """Commit this many messages, or up to the size of a transaction more."""
        connection = await asyncpg.connect(self._url)
        try:
            target = len(self._ledger.committed) + count
            while len(self._ledger.committed) < target:
                await self.transact(connection)
        finally:
            await connection.close()

    async def transact(self, connection: asyncpg.Connection) -> None:
        """One transaction."""
        self._turn += 1
        messages = [self._message(number) for number in range(self._transaction_size)]
        # Until COMMIT is sent, nothing that goes wrong can have committed anything.
        transaction = connection.transaction()
        await transaction.start()
        emitted = await self._emitter.bulk_emit(connection, messages)
        ids = {known: message.ordering_key for known, message in zip(emitted, messages, strict=True) if known}
        await connection.execute("INSERT INTO orders SELECT unnest($1::uuid[])", list(ids))
        if self._turn % 5 == 0:
            self._ledger.rolled_back |= ids.keys()
            await transaction.rollback()
            return
        self._ledger.unknown |= ids
        await transaction.commit()
        for known, key in ids.items():
            del self._ledger.unknown[known]
            self._ledger.committed[known] = key

    def _message(self, number: int) -> OutboxMessage:
        count = self._turn * 7 + number
        key = self._keys[count % len(self._keys)] if self._keys else None
        routing_key = self._routing_keys[count % len(self._routing_keys)]
        body = {"turn": self._turn, "number": number, "padding": self._padding}
        return OutboxMessage(routing_key, body, ordering_key=key)


class Consumer:
    """Acknowledges into the ledger what a queue delivers, and comes back when the broker does."""

    def __init__(self, url: str, queue: str, ledger: Ledger) -> None:
        self._url = url
        self._queue = queue
        self._ledger = ledger
        self._markers: dict[str, asyncio.Event] = {}
        self._last: AbstractIncomingMessage | None = None
        """What was taken and not acknowledged yet, with all before it."""

    async def run(self) -> None:
        while True:
            with suppress(OSError, RuntimeError, aio_pika.exceptions.AMQPError):
                await self._consume()
            await asyncio.sleep(0.1)

    async def flush(self) -> None:
        """Wait until the queue has delivered all that it holds now."""
        marker = str(uuid4())
        seen = self._markers[marker] = asyncio.Event()
        message = aio_pika.Message(b"", message_id=marker, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        async with await aio_pika.connect(self._url) as connection:
            channel = await connection.channel()

            async def is_taken() -> bool:
                # A full queue refuses it.
                with suppress(aio_pika.exceptions.DeliveryError):
                    await channel.default_exchange.publish(message, self._queue)
                    return True
                return False

            await eventually(f"queue {self._queue} takes a message", is_taken)

        async def is_seen() -> bool:
            return seen.is_set()

        await eventually(f"queue {self._queue} has delivered everything", is_seen)

    async def _consume(self) -> None:
        closed = asyncio.Event()
        connection = await aio_pika.connect(self._url, timeout=5)
        try:
            connection.close_callbacks.add(lambda *_: closed.set())
            channel = await connection.channel()
            channel.close_callbacks.add(lambda *_: closed.set())
            await channel.set_qos(prefetch_count=_PREFETCH)
            queue = await channel.get_queue(self._queue)
            await queue.consume(self._take, timeout=10)
            while not closed.is_set():
                await asyncio.sleep(_ACK_SECONDS)
                await self._acknowledge()
        finally:
            self._last = None
            with suppress(OSError, RuntimeError, TimeoutError, aio_pika.exceptions.AMQPError):
                async with asyncio.timeout(5):
                    await connection.close()

    async def _take(self, message: AbstractIncomingMessage) -> None:
        known = message.message_id or ""
        if known in self._markers:
            self._markers[known].set()
        else:
            arrival = Arrival(UUID(known), self._queue, time.time(), bool(message.redelivered))
            self._ledger.note_arrival(arrival)
        self._last = message

    async def _acknowledge(self) -> None:
        last, self._last = self._last, None
        if last is not None:
            await last.ack(multiple=True)


@dataclass
class World:
    """One database, one vhost, and everybody who uses them."""

    services: Services
    """Where both are."""
    postgres_url: str
    rabbitmq_url: str
    folder: Path
    """For the relays' logs."""
    ledger: Ledger = field(default_factory=Ledger)
    relays: list[RelayProcess] = field(default_factory=list)
    """Every relay that was ever started."""

    def __post_init__(self) -> None:
        self.vhost = urlsplit(self.rabbitmq_url).path.removeprefix("/")
        self._stack = AsyncExitStack()
        self._consumers: list[Consumer] = []

    async def __aenter__(self) -> Self:
        async with self.database() as database:
            await database.execute(schema.create_sql())
            await database.execute("CREATE TABLE orders (id uuid PRIMARY KEY)")
        await self._stack.__aenter__()
        self._stack.callback(self._end_relays)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    def _end_relays(self) -> None:
        for number, relay in enumerate(self.relays):
            if relay.is_running:
                relay.kill()
            print(f"--- the end of the log of relay {number}:\n{relay.log[-3000:]}")  # noqa: T201 - shown where a test fails

    @asynccontextmanager
    async def database(self) -> AsyncIterator[asyncpg.Connection]:
        """A connection of the test's own."""
        connection = await asyncpg.connect(self.postgres_url)
        try:
            yield connection
        finally:
            await connection.close()

    @asynccontextmanager
    async def channel(self) -> AsyncIterator[aio_pika.abc.AbstractChannel]:
        """A channel of the test's own."""
        async with await aio_pika.connect(self.rabbitmq_url) as connection:
            yield await connection.channel()

    async def bind(
        self, queue: str = QUEUE, routing_key: str = "#", arguments: dict[str, Any] | None = None
    ) -> None:
        """Make the exchange and a quorum queue bound to it, where they are missing."""
        async with self.channel() as channel:
            exchange = await channel.declare_exchange(EXCHANGE, "topic", durable=True)
            made = await channel.declare_queue(queue, durable=True, arguments=_QUORUM | (arguments or {}))
            await made.bind(exchange, routing_key)

    async def exchange_exists(self) -> bool:
        """Whether the relays' exchange is there."""
        listed = await self.manage("GET", f"exchanges/{self.vhost}")
        return EXCHANGE in [each["name"] for each in listed]

    async def relay_connections(self) -> set[str]:
        """The broker's names for the connections of our relays."""
        listed = await self.manage("GET", f"vhosts/{self.vhost}/connections")
        given = {each["name"]: each.get("client_properties", {}).get("connection_name") for each in listed}
        return {name for name, words in given.items() if str(words).startswith("outbox-relay@")}

    async def close_connection(self, name: str) -> None:
        """Have the broker close a connection."""
        await self.manage("DELETE", f"connections/{quote(name, safe='')}")

    async def manage(self, method: str, path: str) -> Any:
        """Call the broker's HTTP API."""
        return await asyncio.to_thread(management, self.services, method, path)

    async def consume(self, queue: str = QUEUE) -> Consumer:
        """Consume a queue until the test is over."""
        consumer = Consumer(self.rabbitmq_url, queue, self.ledger)
        self._consumers.append(consumer)
        task = asyncio.create_task(consumer.run())

        async def end() -> None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        self._stack.push_async_callback(end)
        await consumer.flush()
        return consumer

    async def start_relay(
        self, environment: Mapping[str, str] | None = None, /, **settings: object
    ) -> RelayProcess:
        """A relay that is ready; the settings are those of `Settings`."""
        relay = self.launch_relay(environment, **settings)
        await relay.ready()
        return relay

    def launch_relay(
        self, environment: Mapping[str, str] | None = None, /, **settings: object
    ) -> RelayProcess:
        """A relay that may not be ready yet."""
        variables = {
            **(environment or {}),
            "OUTBOX_DATABASE_URL": self.postgres_url,
            "OUTBOX_BROKER_URL": self.rabbitmq_url,
            **{f"OUTBOX_{name.upper()}": str(value) for name, value in settings.items()},
        }
        relay = RelayProcess(variables, self.folder / f"relay-{len(self.relays)}.log")
        self.relays.append(relay)
        return relay

    def application(self, **options: Any) -> Application:
        """An application that emits into the ledger."""
        return Application(self.postgres_url, self.ledger, **options)

    @asynccontextmanager
    async def load(
        self, limit: int = 4000, *, writers: int = 1, pause_seconds: float = 0.01, **options: Any
    ) -> AsyncIterator[None]:
        """Emit while the block runs: `limit` messages, then a trickle."""
        stop = asyncio.Event()
        applications = [self.application(**options) for _ in range(writers)]
        tasks = [asyncio.create_task(each.run(stop, limit, pause_seconds)) for each in applications]
        try:
            yield
            stop.set()
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def more_arrive(self, count: int = 1) -> float:
        """Wait until so many further messages have arrived; how many seconds that took."""
        target = len(self.ledger.arrived) + count

        async def have_arrived() -> bool:
            return len(self.ledger.arrived) >= target

        return await eventually(f"{count} further messages have arrived", have_arrived)

    async def everything_arrives(self) -> float:
        """Wait until nothing that was committed is missing; how many seconds that took."""

        async def nothing_is_missing() -> bool:
            return not self.ledger.missing()

        await self.resolve()
        return await eventually(f"all {len(self.ledger.committed)} messages have arrived", nothing_is_missing)

    async def resolve(self) -> int:
        """Look into the database for what became of transactions whose COMMIT was not answered."""
        async with self.database() as database:
            in_the_database = {row["id"] for row in await database.fetch("SELECT id FROM orders")}
        lost = self.ledger.committed.keys() - in_the_database
        assert not lost, f"Postgres itself has lost {len(lost)} orders"
        return self.ledger.resolve(in_the_database)

    async def close_the_books(self) -> int:
        """Everything has arrived, nothing that was rolled back has, and nothing is left; the duplicates.

        The relays that still run are stopped first, so that no duplicate is on its way any more.
        """
        await self.everything_arrives()
        async with self.database() as database:

            async def is_empty() -> bool:
                pending = "SELECT count(*) FROM outbox_table WHERE sent_at IS NULL AND parked_at IS NULL"
                return bool(await database.fetchval(pending) == 0)

            await eventually("nothing is pending", is_empty)
        for relay in self.relays:
            if relay.is_running:
                assert await relay.terminate() == 0, relay.log
        for consumer in self._consumers:
            await consumer.flush()
        assert self.ledger.missing() == set()
        assert self.ledger.uncalled_for() == set()
        return self.ledger.duplicates().total()


async def locked_rows(database: asyncpg.Connection) -> int:
    """How many rows somebody has claimed at the moment."""
    async with database.transaction():
        count: int = await database.fetchval(
            "WITH free AS MATERIALIZED (SELECT id FROM outbox_table FOR UPDATE SKIP LOCKED)"
            " SELECT count(*) FROM outbox_table WHERE id NOT IN (SELECT id FROM free)"
        )
    return count


async def freeze_in_a_batch(
    relay: RelayProcess,
    application: Application,
    database: asyncpg.Connection,
    wait_event: str = "ClientRead",
) -> int:
    """SIGSTOP a relay while the server waits for it with rows locked; how many rows anybody has locked.

    Whether for its next statement (ClientRead) or for it to read the rows (ClientWrite). The application
    gives it something to do by one large transaction a try.
    """
    for attempt in range(200):
        await application.emit(1)
        await asyncio.sleep(attempt % 7 * 0.005)
        relay.send(signal.SIGSTOP)
        # What was already on its way to the server comes to its end.
        await asyncio.sleep(0.1)
        if await _in_transaction(database, relay, wait_event) and (count := await locked_rows(database)):
            return count
        relay.send(signal.SIGCONT)
    raise AssertionError("the relay was never caught in the middle of a batch")


async def _in_transaction(database: asyncpg.Connection, relay: RelayProcess, wait_event: str) -> bool:
    """Whether the server waits for this relay, in this way, in the middle of a transaction."""
    count: int = await database.fetchval(
        "SELECT count(*) FROM pg_stat_activity WHERE client_port = ANY ($1::integer[])"
        " AND application_name = 'outbox-relay' AND xact_start IS NOT NULL AND wait_event = $2",
        relay.client_ports(),
        wait_event,
    )
    return count > 0


def _sockets(pid: int) -> set[str]:
    """The inodes of a process's sockets; see proc_pid_fd(5)."""
    found = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found.add(str(descriptor.readlink()))
    return {name.removeprefix("socket:[").rstrip("]") for name in found if name.startswith("socket:")}
