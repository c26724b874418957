"""A relay whose database is behind a pooler in transaction mode."""

import asyncio
import logging
from collections.abc import Iterator

import aio_pika
import asyncpg
import pytest

from outbox import Emitter, MessageRelay, OutboxMessage, schema
from tests.integration.pgbouncer import PgBouncer


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
