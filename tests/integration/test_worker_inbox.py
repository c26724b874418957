"""Listeners whose effect happens once: the inbox, the listener's writes and its emits commit together."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from outbox import Emitter, Listener, Worker, listen, schema, wire
from outbox_core.broker import Broker
from outbox_core.publisher import Message
from outbox_worker import WorkerError
from tests.integration.working import Calls, Workshop, workshop_at


@pytest.fixture
async def workshop(rabbitmq_url: str) -> AsyncIterator[Workshop]:
    async with workshop_at(rabbitmq_url) as workshop:
        yield workshop


@pytest.fixture
async def database(postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A session of the application, in a database with its outbox and a table of effects."""
    connection = await asyncpg.connect(postgres_url)
    await schema.create(connection)
    await connection.execute("CREATE TABLE effect (body int, attempt int)")
    yield connection
    await connection.close()


async def effects(database: asyncpg.Connection) -> list[int]:
    return [row["body"] for row in await database.fetch("SELECT body FROM effect ORDER BY body")]


async def noted(database: asyncpg.Connection) -> list[str]:
    rows = await database.fetch("SELECT message_id FROM outbox_inbox ORDER BY message_id")
    return [row["message_id"] for row in rows]


def with_inbox(postgres_url: str, **options: Any) -> dict[str, Any]:
    return {"db_engine_url": postgres_url, "auto_create_table": True, **options}


emitter = Emitter()


async def test_the_effect_and_what_is_emitted_commit_with_the_message_and_a_duplicate_is_skipped(
    workshop: Workshop, database: asyncpg.Connection, postgres_url: str
) -> None:
    calls = Calls()

    @listen("a", queue=workshop.queue(), exactly_once=True)
    async def handler(body: int, connection: asyncpg.Connection) -> None:
        calls.note(body)
        await connection.execute("INSERT INTO effect VALUES ($1)", body)
        await emitter.emit(connection, "effect.happened", {"body": body})

    await workshop.working(handler, **with_inbox(postgres_url))
    for number in range(5):
        for _ in range(3):
            await workshop.publish("a", number, message_id=f"id-{number}")
    await workshop.until_metric(10, "outbox_duplicates_skipped_total", handler.queue)
    await workshop.until_empty(handler.queue)
    assert sorted(calls.bodies) == list(range(5))
    assert await effects(database) == list(range(5))
    assert await noted(database) == [f"id-{number}" for number in range(5)]
    assert await database.fetchval("SELECT count(*) FROM outbox_table") == 5


async def test_a_failed_attempt_leaves_nothing_behind_and_is_retried(
    workshop: Workshop, database: asyncpg.Connection, postgres_url: str
) -> None:
    calls = Calls()

    @listen("a", queue=workshop.queue(), exactly_once=True, retry_delays=(0.05,))
    async def handler(body: int, connection: asyncpg.Connection, attempt_count: int) -> None:
        calls.note(body, attempt_count)
        await connection.execute("INSERT INTO effect VALUES ($1, $2)", body, attempt_count)
        if body == 2 or attempt_count == 1:
            raise ValueError("rolled back")

    await workshop.working(handler, **with_inbox(postgres_url))
    await workshop.publish("a", 1, message_id="one")
    await workshop.publish("a", 2, message_id="two")
    letter = await workshop.dead_letter(handler.queue)
    assert letter.message_id == "two"
    await workshop.until_called(calls, 4)
    await workshop.until_empty(handler.queue)
    assert [tuple(row) for row in await database.fetch("SELECT * FROM effect")] == [(1, 2)]
    assert await noted(database) == ["one"]


@pytest.mark.parametrize("raises", [True, False], ids=["raises", "returns"])
async def test_a_listener_that_commits_by_itself_is_dead_lettered_and_can_be_redriven(
    workshop: Workshop, database: asyncpg.Connection, postgres_url: str, raises: bool
) -> None:
    calls = Calls()

    @listen("a", queue=workshop.queue(), exactly_once=True, retry_delays=(0.01,))
    async def handler(body: int, connection: asyncpg.Connection) -> None:
        calls.note(body)
        if len(calls) == 1:
            await connection.execute("COMMIT")
            if raises:
                raise ValueError("half done")
        await connection.execute("INSERT INTO effect VALUES ($1)", body)

    await workshop.working(handler, **with_inbox(postgres_url))
    await workshop.publish("a", 1, message_id="one")
    letter = await workshop.dead_letter(handler.queue)
    assert letter.headers[wire.ERROR_TYPE] == "outbox_worker.errors.TransactionEndedError"
    assert letter.headers[wire.ATTEMPTS] == 1
    assert ("half done" in str(letter.headers[wire.TRACEBACK])) is raises
    assert await noted(database) == []
    await database.execute("TRUNCATE effect")
    await workshop.publish("a", 1, message_id="one")
    await workshop.until_called(calls, 2)
    await workshop.until_empty(handler.queue)
    assert (await noted(database), await effects(database)) == (["one"], [1])


async def test_a_session_of_a_given_engine(
    workshop: Workshop, database: asyncpg.Connection, postgres_url: str
) -> None:
    engine = create_async_engine(postgres_url.replace("postgresql", "postgresql+asyncpg", 1))

    @listen("a", queue=workshop.queue(), exactly_once=True, retry_delays=(0.05,))
    async def handler(body: int, session: Any, attempt_count: int) -> None:
        await session.execute(text("INSERT INTO effect VALUES (:body)"), {"body": body})
        await emitter.emit(session, "effect.happened", {"body": body})
        if attempt_count == 1:
            raise ValueError("rolled back")

    running = await workshop.working(handler, db_engine=engine, auto_create_table=True)
    for _ in range(2):
        await workshop.publish("a", 1, message_id="one")
    await workshop.until_metric(1, "outbox_duplicates_skipped_total", handler.queue)
    await workshop.until_empty(handler.queue)
    await running.stop()
    assert await effects(database) == [1]
    assert await database.fetchval("SELECT count(*) FROM outbox_table") == 1
    async with engine.connect() as connection:
        assert (await connection.exec_driver_sql("SELECT 1")).scalar() == 1
    await engine.dispose()


async def test_a_serialization_failure_at_commit_spends_no_attempt(
    workshop: Workshop, database: asyncpg.Connection, postgres_url: str
) -> None:
    name = await database.fetchval("SELECT current_database()")
    await database.execute(f"ALTER DATABASE {name} SET default_transaction_isolation TO serializable")
    calls = Calls()
    have_read, have_written = asyncio.Barrier(2), asyncio.Barrier(2)

    @listen("a", queue=workshop.queue(), exactly_once=True, retry_delays=())
    async def handler(body: int, connection: asyncpg.Connection, attempt_count: int) -> None:
        calls.note(body, attempt_count)
        is_first_run = len(calls) <= 2
        await connection.fetchval("SELECT count(*) FROM effect")
        if is_first_run:
            await have_read.wait()
        await connection.execute("INSERT INTO effect VALUES ($1)", body)
        if is_first_run:
            await have_written.wait()

    await workshop.working(handler, **with_inbox(postgres_url))
    for number in (1, 2):
        await workshop.publish("a", number)
    await workshop.until_called(calls, 3)
    await workshop.until_empty(handler.queue)
    assert await effects(database) == [1, 2]
    assert calls.attempts == [1, 1, 1]
    assert await workshop.depth(f"{handler.queue}.dlq") == 0


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_deduplicating_listener_is_called_once_for_each_message(
    workshop: Workshop, database: asyncpg.Connection, postgres_url: str, is_async: bool
) -> None:
    bodies: list[int] = []

    async def handle(body: int, attempt_count: int) -> None:
        handle_plainly(body, attempt_count)

    def handle_plainly(body: int, attempt_count: int) -> None:
        if attempt_count == 1 and body == 0:
            raise ValueError("a failed attempt is not noted")
        bodies.append(body)

    listener: Listener[..., Any] = Listener(
        "a", handle if is_async else handle_plainly, workshop.queue(), (0.05,), deduplicate=True
    )
    # One after the other: two duplicates at the same moment may both be called.
    await workshop.working(listener, prefetch_count=1, **with_inbox(postgres_url))
    for number in range(3):
        await workshop.publish("a", number, message_id=f"id-{number}")
    await workshop.until(lambda: sorted(bodies) == [0, 1, 2], "each to be handled")
    await workshop.until_empty(listener.queue)
    for number in range(3):
        await workshop.publish("a", number, message_id=f"id-{number}")
    await workshop.until_metric(3, "outbox_duplicates_skipped_total", listener.queue)
    assert sorted(bodies) == [0, 1, 2]
    assert await noted(database) == ["id-0", "id-1", "id-2"]


@pytest.mark.parametrize("option", ["exactly_once", "deduplicate"])
async def test_a_message_without_an_id_is_dead_lettered_with_the_reason(
    workshop: Workshop, database: asyncpg.Connection, postgres_url: str, option: str
) -> None:
    async def handle(body: Any) -> None: ...

    flags: dict[str, Any] = {option: True}
    listener: Listener[..., Any] = Listener("a", handle, workshop.queue(), **flags)
    await workshop.working(listener, **with_inbox(postgres_url))
    # Not by aio-pika, which would give it an id.
    async with Broker(workshop.rabbitmq_url, name="test") as broker:
        publisher = await broker.publisher()
        await publisher.publish(workshop.exchange_name, [Message("a", b"1")], 30)
        await publisher.aclose()
    letter = await workshop.dead_letter(listener.queue)
    assert letter.headers[wire.ERROR_TYPE] == "outbox_worker.errors.MessageIdMissingError"
    assert "have its publisher set one" in str(letter.headers[wire.ERROR])


@pytest.mark.parametrize("option", ["exactly_once", "deduplicate"])
def test_without_a_database_such_a_listener_is_refused(option: str) -> None:
    async def handle(body: Any) -> None: ...

    flags: dict[str, Any] = {option: True}
    with pytest.raises(WorkerError, match="which takes a database; give Worker db_engine_url or db_engine"):
        Worker(
            rmq_connection_url="amqp://b", listeners=[Listener("a", handle, **flags)], enable_metrics=False
        )


async def test_a_missing_inbox_is_said_at_the_start_with_the_cure(
    workshop: Workshop, database: asyncpg.Connection, postgres_url: str
) -> None:
    @listen("a", queue=workshop.queue(), exactly_once=True)
    async def handler(body: Any) -> None: ...

    worker = workshop.worker(handler, db_engine_url=postgres_url)
    with pytest.raises(WorkerError, match="outbox_inbox"):
        await worker.run_until(asyncio.Event())


@dataclass
class Door:
    """A way to the database that can be shut."""

    host: str
    port: int
    server: asyncio.Server | None = None
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    own_port: int = 0
    own_host: str = "127.0.0.1"

    async def open(self) -> None:
        self.server = await asyncio.start_server(self._enter, self.own_host, self.own_port)
        self.own_port = self.server.sockets[0].getsockname()[1]

    async def shut(self) -> None:
        assert self.server is not None
        self.server.close()
        for writer in self.writers:
            writer.transport.abort()
        self.writers.clear()

    async def _enter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection(self.host, self.port)
        self.writers += [writer, there_writer]
        await asyncio.gather(_carry(reader, there_writer), _carry(there_reader, writer))


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


@pytest.fixture
async def door(postgres_url: str) -> AsyncIterator[tuple[Door, str]]:
    parts = urlsplit(postgres_url)
    door = Door(parts.hostname or "", parts.port or 5432)
    await door.open()
    credentials = parts.netloc.rpartition("@")[0]
    yield door, urlunsplit(parts._replace(netloc=f"{credentials}@127.0.0.1:{door.own_port}"))
    await door.shut()


def listeners(workshop: Workshop, calls: Calls) -> Iterable[tuple[str, Callable[[], Listener[..., Any]]]]:
    @listen("a", queue=workshop.queue(), exactly_once=True, retry_delays=())
    async def once(body: int, attempt_count: int, connection: asyncpg.Connection) -> None:
        await connection.execute("INSERT INTO effect VALUES ($1)", body)
        calls.note(body, attempt_count)

    @listen("a", queue=workshop.queue(), deduplicate=True, retry_delays=())
    async def deduplicated(body: int, attempt_count: int) -> None:
        calls.note(body, attempt_count)

    return [("exactly_once", lambda: once), ("deduplicate", lambda: deduplicated)]


@pytest.mark.parametrize("option", ["exactly_once", "deduplicate"])
async def test_a_database_that_is_away_holds_messages_and_spends_no_attempt(
    workshop: Workshop, database: asyncpg.Connection, door: tuple[Door, str], option: str
) -> None:
    way, url = door
    calls = Calls()
    listener = dict(listeners(workshop, calls))[option]()
    running = await workshop.working(listener, **with_inbox(url))
    await workshop.publish("a", 0)
    await workshop.until_called(calls, 1)
    await workshop.until_empty(listener.queue)
    await way.shut()
    for number in (1, 2, 3):
        await workshop.publish("a", number)
    await workshop.until(
        lambda: "the database is away" in (running.worker.unready_reason() or ""),
        lambda: f"the worker to say so: {running.worker.unready_reason()}",
    )
    await way.open()
    await workshop.until_called(calls, 4)
    await workshop.until_ready(running)
    await workshop.until_empty(listener.queue)
    assert sorted(calls.bodies) == [0, 1, 2, 3]
    assert calls.attempts == [1, 1, 1, 1]
    assert await workshop.depth(f"{listener.queue}.dlq") == 0


async def test_what_is_held_is_given_back_when_the_worker_stops(
    workshop: Workshop, database: asyncpg.Connection, door: tuple[Door, str], postgres_url: str
) -> None:
    way, url = door
    calls = Calls()
    listener = dict(listeners(workshop, calls))["exactly_once"]()
    running = await workshop.working(listener, **with_inbox(url))
    await way.shut()
    await workshop.publish("a", 1)
    await workshop.until(
        lambda: "the database is away" in (running.worker.unready_reason() or ""), "the message to be held"
    )
    await running.stop()
    assert len(calls) == 0
    await workshop.working(listener, **with_inbox(postgres_url))
    await workshop.until_called(calls, 1)


async def test_a_database_that_comes_later_is_waited_for(
    workshop: Workshop, database: asyncpg.Connection, door: tuple[Door, str]
) -> None:
    way, url = door
    await way.shut()
    calls = Calls()
    listener = dict(listeners(workshop, calls))["exactly_once"]()
    running = workshop.start(workshop.worker(listener, **with_inbox(url)))
    await workshop.until(
        lambda: "waiting: Postgres" in (running.worker.unready_reason() or ""),
        lambda: f"the worker to wait: {running.worker.unready_reason()}",
    )
    await way.open()
    await workshop.until_ready(running)


async def test_the_inbox_forgets_what_is_old(
    workshop: Workshop, database: asyncpg.Connection, postgres_url: str
) -> None:
    calls = Calls()
    listener = dict(listeners(workshop, calls))["exactly_once"]()
    await (await workshop.working(listener, **with_inbox(postgres_url))).stop()
    await database.execute(
        "INSERT INTO outbox_inbox (queue, message_id, handled_at) "
        "SELECT 'q', n::text, now() - interval '8 days' FROM generate_series(1, 2500) n"
    )
    await database.execute("INSERT INTO outbox_inbox (queue, message_id) VALUES ('q', 'fresh')")
    await workshop.working(listener, **with_inbox(postgres_url))

    async def holds() -> bool:
        return await noted(database) == ["fresh"]

    await workshop.until(holds, "the old ones to be forgotten")
