"""What the measurements share: a table and a queue, filled and watched, and the relays between them."""

import asyncio
import contextlib
import json
import os
import time
import urllib.request
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import aio_pika
import asyncpg

from bench import processes
from bench.queue import TOPIC, Queue
from bench.tally import BODY_BYTES
from outbox import schema
from outbox_cli.local import Services
from outbox_relay import Settings

TABLE = "outbox_table"

OURS = "outbox_relay"
NAIVE = "bench.naive"

_STATEMENT_SECONDS = 600.0

_FILL = """
    INSERT INTO {table} (routing_key, body, content_type, tracking_ids, ordering_key)
    SELECT $1, convert_to(rpad('{{"n": ' || n || ', "text": "', $2 - 2, 'x') || '"}}', 'UTF8'),
        'application/json', json_build_array(gen_random_uuid()),
        CASE WHEN $3::integer > 0 THEN '{prefix}-' || n % $3::integer END
    FROM generate_series(1, $4::integer) AS n
"""

_WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = $1::text::regclass"


@dataclass(frozen=True)
class Drain:
    """What draining the table took."""

    messages: int
    seconds: float
    relay_cpu: float
    """CPU seconds of the relay's processes, and so on."""
    postgres_cpu: float
    broker_cpu: float

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.messages / self.seconds

    @property
    def relay_cpu_us(self) -> float:
        """CPU of the relays for one message, in microseconds."""
        return self.relay_cpu / self.messages * 1e6

    def split(self) -> str:
        """Where the CPU went, in microseconds a message."""
        shares = (("relay", self.relay_cpu), ("Postgres", self.postgres_cpu), ("RabbitMQ", self.broker_cpu))
        return ", ".join(f"{who} {cpu / self.messages * 1e6:.0f}" for who, cpu in shares) + " µs"


class Stage:
    """A table and a queue on the services."""

    def __init__(self, services: Services, connection: Any, channel: Any) -> None:
        self.postgres_url = services.postgres.url
        self.broker_url = services.rabbitmq.url
        self._broker_pid = broker_pid(services.rabbitmq.management_url)
        self.queue = Queue(self.broker_url, channel)
        self._connection = connection

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, services: Services) -> AsyncIterator["Stage"]:
        connection = await asyncpg.connect(services.postgres.url)
        try:
            async with await aio_pika.connect(services.rabbitmq.url) as broker:
                yield cls(services, connection, await broker.channel())
        finally:
            await connection.close()

    async def clear(self, table: str = TABLE) -> None:
        """An empty table and an empty quorum queue that is bound for everything."""
        await self._connection.execute(schema.drop_sql(table))
        await self._connection.execute(schema.create_sql(table))
        await self.queue.clear()

    async def clear_effects(self) -> None:
        """No trace of what handlers wrote, and none of what was handled."""
        await self._connection.execute("DROP TABLE IF EXISTS effects, outbox_inbox")
        await self._connection.execute("CREATE TABLE effects (body bytea)")

    def consumer_cpu(self, consumers: list[int]) -> tuple[float, float]:
        """CPU seconds of the consumers, and of the broker, so far."""
        return processes.cpu_seconds(consumers), processes.cpu_seconds([self._broker_pid])

    async def execute(self, sql: str) -> None:
        """Do something to the tables."""
        await self._connection.execute(sql, timeout=_STATEMENT_SECONDS)

    async def fill(
        self, count: int, *, table: str = TABLE, keys: int = 0, prefix: str = "key", vacuum: bool = True
    ) -> None:
        """Pending rows, as they are when they have been there for a while: vacuumed and analysed."""
        await self._connection.execute(
            _FILL.format(table=table, prefix=prefix),
            TOPIC,
            BODY_BYTES,
            keys,
            count,
            timeout=_STATEMENT_SECONDS,
        )
        if vacuum:
            await self.execute(f"VACUUM ANALYZE {table}")

    @contextlib.asynccontextmanager
    async def relays(
        self,
        module: str,
        *,
        table: str = TABLE,
        replicas: int = 1,
        environment: Mapping[str, str] | None = None,
    ) -> AsyncIterator[list[int]]:
        """Relay processes that begin to claim as the block begins: their start is not what is measured."""
        environment = {
            "OUTBOX_DATABASE_URL": self.postgres_url,
            "OUTBOX_BROKER_URL": self.broker_url,
            "OUTBOX_TABLE_NAME": table,
            "OUTBOX_PROBE_PORT": "0",
            "OUTBOX_LOG_LEVEL": "WARNING",
            **(environment or {}),
        }
        with contextlib.ExitStack() as started:
            lanes = int(environment.get("OUTBOX_LANES", Settings().lanes)) if module == OURS else 1
            async with self._held(table, replicas * lanes):
                relays = [
                    started.enter_context(processes.running(module, environment)) for _ in range(replicas)
                ]
            yield [relay.pid for relay in relays]

    @contextlib.asynccontextmanager
    async def _held(self, table: str, claims: int) -> AsyncIterator[None]:
        """Keep the table's rows from being claimed, until so many claims wait for them."""
        async with self._connection.transaction():
            await self._connection.execute(f"LOCK TABLE {table} IN EXCLUSIVE MODE")
            yield
            async with asyncio.timeout(60):
                while await self._connection.fetchval(_WAITING, table) < claims:  # noqa: ASYNC110 - theirs
                    await asyncio.sleep(0.05)
            # The rest of a relay starts beside its claims.
            await asyncio.sleep(0.5)

    async def drain(
        self,
        module: str,
        count: int,
        *,
        table: str = TABLE,
        replicas: int = 1,
        environment: Mapping[str, str] | None = None,
    ) -> Drain:
        """Have relays move what is in the table until so many messages have arrived."""
        async with self.relays(module, table=table, replicas=replicas, environment=environment) as pids:
            return await self.watch(pids, count)

    async def watch(self, publishers: list[int], count: int) -> Drain:
        """What the arrival of so many more messages takes, from now on."""
        already = await self.queue.waiting()
        before = await self.cpu(publishers)
        began = time.monotonic()
        await self.queue.arrival_of(already + count)
        seconds = time.monotonic() - began
        after = await self.cpu(publishers)
        publisher, postgres, broker = (late - early for early, late in zip(before, after, strict=True))
        return Drain(count, seconds, publisher, postgres, broker)

    @contextlib.asynccontextmanager
    async def postgres_on_a_core_of_its_own(self) -> AsyncIterator[None]:
        """Keep everything else that we have started, and what we start, on the other cores."""
        cores = os.sched_getaffinity(0)
        if len(cores) < 2:
            raise RuntimeError("Postgres cannot have a core of its own: there is only one")
        own = max(cores)
        backend = await self._connection.fetchval("SELECT pg_backend_pid()")
        others = [os.getpid(), self._broker_pid]
        processes.pin(processes.family(backend), {own})
        processes.pin(others, cores - {own})
        try:
            yield
        finally:
            processes.pin([*processes.family(backend), *others], cores)

    async def cpu(self, relays: list[int]) -> tuple[float, float, float]:
        """CPU seconds of the relays, of Postgres and of the broker, so far."""
        backend = await self._connection.fetchval("SELECT pg_backend_pid()")
        server = processes.family(backend)
        return (
            processes.cpu_seconds(relays),
            processes.cpu_seconds(server) + processes.reaped_seconds(server[0]),
            processes.cpu_seconds([self._broker_pid]),
        )


def broker_pid(management_url: str) -> int:
    """The process id of the broker's node, as it says itself some seconds after its start."""
    parts = urlsplit(management_url)
    address = f"{parts.hostname}:{parts.port}"
    passwords = urllib.request.HTTPPasswordMgrWithDefaultRealm()
    passwords.add_password(None, address, parts.username or "", parts.password or "")
    opener = urllib.request.build_opener(urllib.request.HTTPBasicAuthHandler(passwords))
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with opener.open(urlunsplit((parts.scheme, address, "/api/nodes", "", ""))) as answer:
            node = json.load(answer)[0]
        if "os_pid" in node:
            return int(node["os_pid"])
        time.sleep(0.5)
    raise TimeoutError("the management API does not tell the broker's process id")


def progress(what: str) -> None:
    print(f"  {what} …", flush=True)
