"""The stage of a chaos test: a database and a vhost, with relays, applications and consumers on them."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlsplit

import aio_pika
import asyncpg

from outbox import schema
from outbox_cli.local import Services
from tests.chaos.application import Application
from tests.chaos.consumer import Consumer
from tests.chaos.ledger import Ledger
from tests.chaos.process import Process
from tests.chaos.waiting import eventually
from tests.integration.administrator import management

EXCHANGE = "outbox"
QUEUE = "arrivals"
_QUORUM: dict[str, Any] = {"x-queue-type": "quorum"}


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
    relays: list[Process] = field(default_factory=list)
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
        return await self.connections("outbox-relay@")

    async def connections(self, prefix: str) -> set[str]:
        """The broker's names for the connections whose own begin like this."""
        listed = await self.manage("GET", f"vhosts/{self.vhost}/connections")
        given = {each["name"]: each.get("client_properties", {}).get("connection_name") for each in listed}
        return {name for name, words in given.items() if str(words).startswith(prefix)}

    async def close_connection(self, name: str) -> None:
        """Have the broker close a connection."""
        await self.manage("DELETE", f"connections/{quote(name, safe='')}")

    async def manage(self, method: str, path: str) -> Any:
        """Call the broker's HTTP API."""
        return await asyncio.to_thread(management, self.services, method, path)

    async def consume(self, queue: str = QUEUE, ledger: Ledger | None = None) -> Consumer:
        """Consume a queue until the test is over, into a ledger of its own or that of the world."""
        consumer = Consumer(self.rabbitmq_url, queue, self.ledger if ledger is None else ledger)
        self._consumers.append(consumer)
        task = asyncio.create_task(consumer.run())

        async def end() -> None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        self._stack.push_async_callback(end)
        await consumer.flush()
        return consumer

    async def flush(self) -> None:
        """Wait until everything that is in the queues has arrived."""
        for consumer in self._consumers:
            await consumer.flush()

    async def start_relay(
        self, environment: Mapping[str, str] | None = None, /, **settings: object
    ) -> Process:
        """A relay that is ready; the settings are those of `Settings`."""
        relay = self.launch_relay(environment, **settings)
        await relay.ready()
        return relay

    def launch_relay(self, environment: Mapping[str, str] | None = None, /, **settings: object) -> Process:
        """A relay that may not be ready yet."""
        variables = {
            "OUTBOX_DATABASE_URL": self.postgres_url,
            "OUTBOX_BROKER_URL": self.rabbitmq_url,
            **(environment or {}),
            **{f"OUTBOX_{name.upper()}": str(value) for name, value in settings.items()},
        }
        relay = Process(["outbox_relay"], variables, self.folder / f"relay-{len(self.relays)}.log")
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

    async def nothing_is_pending(self) -> None:
        """Wait until the relays have sent all that was committed."""
        async with self.database() as database:

            async def is_empty() -> bool:
                pending = "SELECT count(*) FROM outbox_table WHERE sent_at IS NULL AND parked_at IS NULL"
                return bool(await database.fetchval(pending) == 0)

            await eventually("nothing is pending", is_empty)

    async def close_the_books(self) -> int:
        """Everything has arrived, nothing that was rolled back has, and nothing is left; the duplicates.

        The relays that still run are stopped first, so that no duplicate is on its way any more.
        """
        await self.everything_arrives()
        await self.nothing_is_pending()
        for relay in self.relays:
            if relay.is_running:
                assert await relay.terminate() == 0, relay.log
        await self.flush()
        assert self.ledger.missing() == set()
        assert self.ledger.uncalled_for() == set()
        return self.ledger.duplicates().total()
