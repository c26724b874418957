"""Code written for the original library's `MessageRelay` works as it is, and what is put on the wire."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import aio_pika
import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from outbox import Emitter, MessageRelay, tracking
from outbox_relay import IMMEDIATELY, NEVER
from tests.integration.relaying import ONLY_WOKEN, Traffic, traffic_between


@pytest.fixture
async def traffic(postgres_url: str, rabbitmq_url: str) -> AsyncIterator[Traffic]:
    async with traffic_between(postgres_url, rabbitmq_url) as traffic:
        yield traffic


def sqlalchemy_url(url: str) -> str:
    return url.replace("postgresql", "postgresql+asyncpg", 1)


async def test_a_relay_by_urls_with_all_of_the_original_arguments(traffic: Traffic) -> None:
    inbox = await traffic.inbox("user.*")
    relay = MessageRelay(
        db_engine_url=sqlalchemy_url(traffic.postgres_url),
        rmq_connection_url=traffic.rabbitmq_url,
        exchange_name=traffic.exchange_name,
        notification_timeout=60.0,
        expiration=timedelta(minutes=5),
        clean_up_after=IMMEDIATELY,
        table_name="outbox_table",
        batch_size=50,
        auto_create_table=True,
        enable_metrics=True,
    )
    await traffic.start(relay)
    message = await inbox.get(await traffic.emit("user.created", {"id": 123}))
    assert json.loads(message.body) == {"id": 123}
    assert message.expiration is not None
    await traffic.until_ids([])


async def test_a_relay_by_an_engine_and_a_robust_connection_leaves_both_to_their_owner(
    traffic: Traffic,
) -> None:
    inbox = await traffic.inbox("#")
    engine = create_async_engine(sqlalchemy_url(traffic.postgres_url))
    connection = await aio_pika.connect_robust(traffic.rabbitmq_url)
    relay = MessageRelay(
        db_engine=engine,
        rmq_connection=connection,
        exchange_name=traffic.exchange_name,
        clean_up_after=NEVER,
    )
    running = await traffic.start(relay)
    sent = [await traffic.emit("a")]
    await inbox.gets(sent)
    await running.stop()
    await traffic.until_ids(sent, "sent_at IS NOT NULL")
    assert not connection.is_closed
    channel = await connection.channel()
    await channel.close()
    await connection.close()
    async with engine.connect() as session:
        assert (await session.exec_driver_sql("SELECT 1")).scalar() == 1
    await engine.dispose()


async def test_arguments_go_by_position_as_they_did(traffic: Traffic) -> None:
    relay = MessageRelay(None, traffic.postgres_url, None, traffic.rabbitmq_url, exchange_name="elsewhere")
    assert await relay.run_once() == 0


async def test_a_table_of_another_name_is_created_and_relayed(traffic: Traffic) -> None:
    inbox = await traffic.inbox("#")
    name = 'shop."My outbox"'
    await traffic.database.execute("CREATE SCHEMA shop")
    await traffic.relaying(table_name=name, auto_create_table=True, **ONLY_WOKEN)
    async with traffic.database.transaction():
        sent = str(await Emitter(table_name=name).emit(traffic.database, "a", 1))
    await inbox.gets([sent])


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"rmq_connection_url": "amqp://b"}, "give exactly one of db_engine and db_engine_url"),
        (
            {"db_engine": object(), "db_engine_url": "postgresql://d", "rmq_connection_url": "amqp://b"},
            "give exactly one of db_engine and db_engine_url",
        ),
        ({"db_engine_url": "postgresql://d"}, "give exactly one of rmq_connection and rmq_connection_url"),
        (
            {"db_engine_url": "postgresql://d", "rmq_connection": object(), "rmq_connection_url": "amqp://b"},
            "give exactly one of rmq_connection and rmq_connection_url",
        ),
    ],
)
def test_exactly_one_way_to_each_side_is_needed(arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises(TypeError, match=complaint):
        MessageRelay(**arguments)


async def test_a_message_on_the_wire(traffic: Traffic) -> None:
    inbox = await traffic.inbox("order.*")
    await traffic.relaying()
    with tracking():
        message_id = await traffic.emit(
            "order.placed", {"id": 1}, headers={"tenant": "ü", "n": 3, "deep": {"list": [True, None, 1.5]}}
        )
    emitted = datetime.now(UTC)
    message = await inbox.get(message_id)
    assert json.loads(message.body) == {"id": 1}
    assert message.delivery_mode == aio_pika.DeliveryMode.PERSISTENT
    assert message.content_type == "application/json"
    assert (message.message_id, message.routing_key) == (message_id, "order.placed")
    assert message.timestamp is not None
    assert abs(message.timestamp - emitted) < timedelta(hours=1)
    assert message.expiration is None
    tracking_ids = message.headers["x-outbox-tracking-ids"]
    assert isinstance(tracking_ids, str)
    chain = json.loads(tracking_ids)
    assert (len(chain), chain[-1]) == (2, message_id)
    assert {name: value for name, value in message.headers.items() if name != "x-outbox-tracking-ids"} == {
        "x-outbox-routing-key": "order.placed",
        "x-outbox-attempt": 1,
        "tenant": "ü",
        "n": 3,
        "deep": {"list": [True, None, 1.5]},
    }


async def test_bytes_and_their_content_type_go_as_they_are(traffic: Traffic) -> None:
    inbox = await traffic.inbox("#")
    await traffic.relaying()
    body = bytes(range(256)) * 1000
    message = await inbox.get(await traffic.emit("a", body, content_type="image/png"))
    assert (message.body, message.content_type) == (body, "image/png")


async def test_a_row_of_the_original_library_is_json_on_the_wire(traffic: Traffic) -> None:
    """It has no content type, and no message id but the one that the upgrade gave it."""
    inbox = await traffic.inbox("#")
    message_id = await traffic.insert(body="'{\"id\": 1}'", tracking_ids="'[\"abc\"]'")
    await traffic.relaying()
    message = await inbox.get(message_id)
    assert message.content_type == "application/json"
    assert message.headers["x-outbox-tracking-ids"] == '["abc"]'


async def test_headers_of_ours_are_not_the_applications_to_set(traffic: Traffic) -> None:
    inbox = await traffic.inbox("#")
    await traffic.relaying()
    message = await inbox.get(await traffic.emit("a", headers={"x-outbox-attempt": 7, "mine": 1}))
    assert (message.headers["x-outbox-attempt"], message.headers["mine"]) == (1, 1)
