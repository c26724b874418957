"""What a page takes for granted: the shop on the day after, with parked messages and dead letters."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import yaml

from outbox import schema, wire
from outbox.topology import dead_letter_queue, topology
from outbox_core.broker import Broker
from outbox_core.publisher import CONFIRMED, Message
from outbox_operator.resources import OutboxListener
from outbox_operator.subscriptions import subscription_of
from outbox_worker.redelivery import Failure, dead_letter
from tests.docs.pages import REPOSITORY

TABLES = f"""
CREATE TABLE users (id bigint PRIMARY KEY, username text);
CREATE TABLE orders (id bigint PRIMARY KEY, total numeric NOT NULL DEFAULT 0);
CREATE TABLE bookings (order_id bigint PRIMARY KEY);
{schema.create_sql("outbox_table")};
INSERT INTO outbox_table (routing_key, body, created_at, send_after, parked_at, attempts, last_error)
SELECT 'order.cancelled', '{{"id": 7}}', now() - interval '2 hours', now() - interval '2 hours',
    now() - interval '119 minutes', 12, 'no queue is bound for "order.cancelled" on exchange "outbox"'
FROM generate_series(1, 2);
"""
_LISTENERS = REPOSITORY / "examples" / "shop" / "manifests" / "listeners.yaml"
_QUEUE = "shop.charge-card"
_SECONDS = 30


class MailServer:
    """Sends nothing, and is never busy."""

    def is_busy(self) -> bool:
        return False

    async def send(self, _address: str) -> None:
        return


async def names(page: Path, database_url: str) -> dict[str, Any]:
    """What the Python blocks of the page find, by its name."""
    connection = await asyncpg.connect(database_url, timeout=_SECONDS)
    return {"__name__": page.stem, "connection": connection, "mail_server": MailServer()}


async def close(names: dict[str, Any]) -> None:
    await names["connection"].close()


async def fill(broker_url: str) -> None:
    """Make the queues of the shop's listeners, and leave three dead letters in one of them."""
    listeners = [
        OutboxListener.model_validate({**each, "metadata": {**each["metadata"], "namespace": "shop"}})
        for each in yaml.safe_load_all(_LISTENERS.read_text())
    ]
    async with Broker(broker_url, name="docs") as broker:
        await broker.declare(topology("outbox", map(subscription_of, listeners)))
        publisher = await broker.publisher()
        outcomes = await publisher.publish("", [_letter(number) for number in (1, 11, 21)], _SECONDS)
        assert set(outcomes) == {CONFIRMED}
        await publisher.aclose()


def _letter(number: int) -> Message:
    error = ValueError(f"order {number}: unknown card")
    message = Message(
        routing_key="card.charge",
        body=f'{{"id": {number}}}'.encode(),
        message_id=f"00000000-0000-0000-0000-{number:012}",
        content_type="application/json",
        headers={wire.ROUTING_KEY: "card.charge", wire.ATTEMPT: 2},
    )
    failed = Failure(error, 2, datetime.now(UTC) - timedelta(hours=1))
    letter = dead_letter(message, _QUEUE, failed)
    return Message(
        routing_key=dead_letter_queue(_QUEUE),
        body=letter.body,
        message_id=letter.message_id,
        content_type=letter.content_type,
        headers=letter.headers,
    )
