"""`python -m bench.naive`: the relay that one writes in an afternoon, with the settings of ours.

It is not a bad one: it wakes on NOTIFY, claims by the index, skips what is locked, publishes a batch of 50 at
once with confirms, and never loses a message. It is the baseline of what the real one does better.
"""

import asyncio
import os
import signal
from typing import Any

import aio_pika
import asyncpg

_BATCH = 50
_POLL_SECONDS = 1.0
_CLAIM = """
    SELECT id, message_id, routing_key, body, content_type, tracking_ids FROM {table}
    WHERE ordering_key IS NULL AND sent_at IS NULL AND parked_at IS NULL AND send_after <= now()
    ORDER BY send_after, id LIMIT $1 FOR UPDATE SKIP LOCKED
"""


async def main() -> None:
    table = os.environ.get("OUTBOX_TABLE_NAME", "outbox_table")
    database = await asyncpg.connect(os.environ["OUTBOX_DATABASE_URL"])
    notified = asyncio.Event()
    await database.add_listener("outbox_channel", lambda *_: notified.set())
    async with await aio_pika.connect(os.environ["OUTBOX_BROKER_URL"]) as broker:
        channel = await broker.channel(publisher_confirms=True, on_return_raises=True)
        exchange = await channel.declare_exchange("outbox", "topic", durable=True)
        while True:
            notified.clear()
            if not await _move(database, exchange, table):
                try:
                    await asyncio.wait_for(notified.wait(), _POLL_SECONDS)
                except TimeoutError:
                    continue


async def _move(database: Any, exchange: aio_pika.abc.AbstractExchange, table: str) -> bool:
    async with database.transaction():
        rows = await database.fetch(_CLAIM.format(table=table), _BATCH)
        if not rows:
            return False
        await asyncio.gather(
            *(exchange.publish(_message(row), row["routing_key"], mandatory=True) for row in rows)
        )
        await database.execute(
            f"DELETE FROM {table} WHERE id = ANY ($1::bigint[])", [row["id"] for row in rows]
        )
    return True


def _message(row: Any) -> aio_pika.Message:
    return aio_pika.Message(
        row["body"],
        message_id=str(row["message_id"]),
        content_type=row["content_type"],
        headers={"x-outbox-tracking-ids": row["tracking_ids"]},
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
    )


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    asyncio.run(main())
