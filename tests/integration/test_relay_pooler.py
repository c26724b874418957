"""A relay whose database is behind a pooler in transaction mode."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import aio_pika
import asyncpg
import pytest

from outbox import Emitter, MessageRelay, OutboxMessage, schema
from outbox_core.database import Database
from tests.integration.pgbouncer import PgBouncer
from tests.integration.relaying import Traffic, traffic_between

SESSIONS = 8
"""More than a relay uses at once."""

_BOUND = "current_setting('idle_in_transaction_session_timeout')"


@pytest.fixture
def pooler(postgres_url: str) -> Iterator[PgBouncer]:
    with PgBouncer(postgres_url) as pooler:
        pooler.start("transaction")
        yield pooler


async def test_behind_pgbouncer_in_transaction_mode_it_polls_says_so_once_and_delivers(
    pooler: PgBouncer, postgres_url: str, rabbitmq_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    database = await asyncpg.connect(postgres_url)
    await schema.create(database)
    broker = await aio_pika.connect(rabbitmq_url)
    channel = await broker.channel()
    exchange = await channel.declare_exchange("outbox", "topic", durable=True)
    queue = await channel.declare_queue("all", durable=True)
    await queue.bind(exchange, "#")
    stopping = asyncio.Event()
    relay = MessageRelay(
        db_engine_url=pooler.url, rmq_connection_url=rabbitmq_url, poll_interval=0.1, batch_size=7
    )
    emitted: set[str] = set()
    arrived: set[str] = set()

    with caplog.at_level(logging.WARNING):
        running = asyncio.create_task(relay.run_until(stopping))
        async with asyncio.timeout(60), queue.iterator() as messages:
            for _ in range(5):
                async with database.transaction():
                    ids = await Emitter().bulk_emit(
                        database, [OutboxMessage("user.created", number) for number in range(20)]
                    )
                emitted |= {str(message_id) for message_id in ids}
                async for message in messages:
                    arrived.add(message.message_id or "")
                    await message.ack()
                    if arrived >= emitted:
                        break
            while "LISTEN is dead" not in caplog.text:
                await asyncio.sleep(0.05)
        stopping.set()
        await running

    assert arrived == emitted
    assert await database.fetchval("SELECT count(*) FROM outbox_table") == 0
    assert caplog.text.count("LISTEN is dead") == 1
    await broker.close()
    await database.close()


@pytest.fixture
async def traffic(postgres_url: str, rabbitmq_url: str) -> AsyncIterator[Traffic]:
    async with traffic_between(postgres_url, rabbitmq_url) as traffic:
        yield traffic


async def bounds(pooler: PgBouncer) -> list[str]:
    """How long a transaction may be idle in each of the pooler's sessions, all in use at once."""
    async with AsyncExitStack() as stack:
        clients = [await asyncpg.connect(pooler.url, statement_cache_size=0) for _ in range(SESSIONS)]
        for client in clients:
            stack.push_async_callback(client.close)
            await stack.enter_async_context(client.transaction())
        return [await client.fetchval(f"SELECT {_BOUND}") for client in clients]


async def test_the_time_of_a_batch_is_bounded_in_whichever_session_it_gets_and_in_no_other_clients(
    traffic: Traffic, postgres_url: str
) -> None:
    """Also before the relay has found out that there is a pooler."""
    await traffic.database.execute(
        f"""
        CREATE TABLE bounds (bound text);
        CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN INSERT INTO bounds VALUES ({_BOUND}); RETURN NULL; END $$;
        CREATE TRIGGER note AFTER DELETE ON outbox_table EXECUTE FUNCTION note()
        """
    )
    inbox = await traffic.inbox("#")
    with PgBouncer(postgres_url) as pooler:
        pooler.start("transaction", in_turn=True)
        # From here on it has so many sessions, and gives the next one to whoever comes.
        assert await bounds(pooler) == ["0"] * SESSIONS
        emitted = [await traffic.emit("a")]
        running = await traffic.relaying(db_engine_url=pooler.url, publish_timeout=7)
        for number in range(20):
            await inbox.gets(emitted)
            emitted.append(await traffic.emit("a", number))
        await traffic.until_ids([])
        await running.stop()
        assert await bounds(pooler) == ["0"] * SESSIONS
    of_batches = await traffic.database.fetch("SELECT DISTINCT bound FROM bounds")
    assert [row["bound"] for row in of_batches] == ["12s"]


async def held(pooler: PgBouncer, stack: AsyncExitStack) -> int:
    """Keep the session that the pooler gives next from other clients; returns its process id."""
    client = await asyncpg.connect(pooler.url, statement_cache_size=0)
    stack.push_async_callback(client.close)
    await stack.enter_async_context(client.transaction())
    return int(await client.fetchval("SELECT pg_backend_pid()"))


@pytest.fixture
def _same_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each connection name its statements from 1 on, as that of another process does."""
    connect = asyncpg.connect

    async def connect_anew(*args: Any, **options: Any) -> Any:
        monkeypatch.setattr("asyncpg.connection._uid", 0)
        return await connect(*args, **options)

    monkeypatch.setattr("asyncpg.connect", connect_anew)


@pytest.mark.usefixtures("_same_names")
@pytest.mark.parametrize("is_recognised", [True, False], ids=["recognised", "unrecognised"])
async def test_a_connection_never_runs_another_process_statement(
    pooler: PgBouncer, is_recognised: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_recognised:
        # As a pooler that passes on the process id of the server's session.
        monkeypatch.setattr("outbox_core.database._BACKEND", "true OR {pid} IS NULL")
    clients = []
    sessions = []
    async with AsyncExitStack() as stack:
        for number in range(2):
            client = await Database(pooler.url).connect()
            async with client.transaction():
                sessions.append(await client.fetchval("SELECT pg_backend_pid()"))
                assert await client.fetchval(f"SELECT {number}") == number
            clients.append(client)
            # The next one gets another session.
            assert await held(pooler, stack) == sessions[-1]
        assert len(set(sessions)) == 2
    async with AsyncExitStack() as stack:
        assert await held(pooler, stack) in sessions
        for number, client in enumerate(clients):
            with contextlib.suppress(asyncpg.InvalidSQLStatementNameError):
                async with client.transaction():
                    assert await client.fetchval(f"SELECT {number}") == number
    for client in clients:
        await client.close()


async def test_rows_of_another_table_are_neither_published_nor_settled(
    traffic: Traffic, caplog: pytest.LogCaptureFixture
) -> None:
    await schema.create(traffic.database, "other_table")
    await traffic.database.execute("INSERT INTO other_table (routing_key, body) VALUES ('a', '1')")
    kept = await traffic.emit("a", eta=timedelta(hours=1))
    inbox = await traffic.inbox("#")
    relay = traffic.relay(lanes=1)
    # As a pooler would that gives the relay a session in which another one has prepared its claim.
    queries, right = relay._queries, relay._queries.claim
    queries.claim = right.replace('"outbox_table"', '"other_table"')
    await traffic.start(relay)
    with caplog.at_level(logging.WARNING):
        await traffic.until(lambda: "rows of another table" in caplog.text, "the mistake to be noticed")
    assert "nothing stays prepared" in caplog.text
    assert "rows of another table" in str(relay.unready_reason())
    queries.claim = right
    sent = await traffic.emit("a")
    await inbox.gets([sent])
    assert inbox.ids == [sent]
    await traffic.until_ids([kept])
    assert await traffic.database.fetchval("SELECT count(*) FROM other_table") == 1
