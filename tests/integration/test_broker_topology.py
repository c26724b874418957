"""Making and checking a topology through a `Broker`: what is there, what is missing, and who may make it."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from urllib.parse import urlsplit, urlunsplit

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel

from outbox.topology import Binding, Queue, Subscription, topology
from outbox_cli.local import Services
from outbox_core.broker import Broker
from outbox_core.broker_errors import (
    BrokerLostError,
    QueueMissingError,
    TopologyConflictError,
    TopologyMissingError,
)
from outbox_core.publisher import CONFIRMED, Message
from tests.integration.administrator import management, user_without_rights

DEADLINE = 30.0
QUEUE = "shop.mail"
SHOP = topology("outbox", [Subscription(QUEUE, ("user.*", "order.#"), (timedelta(seconds=1),))])
EVERY_NAME = [
    'exchange "outbox"',
    'exchange "outbox.dlx"',
    'exchange "outbox.delay_1s"',
    'queue "shop.mail.dlq"',
    'queue "outbox.delay_1s"',
    'queue "shop.mail"',
]


@pytest.fixture
async def broker(rabbitmq_url: str) -> AsyncIterator[Broker]:
    async with Broker(rabbitmq_url, name="test") as broker:
        yield broker


@pytest.fixture
async def channel(rabbitmq_url: str) -> AsyncIterator[AbstractChannel]:
    """Another connection, to arrange things."""
    async with await aio_pika.connect(rabbitmq_url) as connection, connection.channel() as channel:
        yield channel


@contextmanager
def restricted(services: Services, rabbitmq_url: str, *, write: str, read: str = ".*") -> Iterator[str]:
    """The URL of a user who may configure nothing."""
    parts = urlsplit(rabbitmq_url)
    with user_without_rights(services) as name:
        rights = {"configure": "^$", "write": write, "read": read}
        management(services, "PUT", f"permissions/{parts.path[1:]}/{name}", rights)
        yield urlunsplit(parts._replace(netloc=f"{name}:{name}@{parts.hostname}:{parts.port}"))


async def publish(broker: Broker, exchange: str, key: str) -> list[object]:
    publisher = await broker.publisher()
    outcomes = await publisher.publish(exchange, [Message(key, b"{}", "m", 0)], DEADLINE)
    await publisher.aclose()
    return list(outcomes)


async def until_depth(broker: Broker, queue: str, depth: int) -> None:
    deadline = time.monotonic() + DEADLINE
    while (found := await broker.depth(queue)) != depth:
        assert time.monotonic() < deadline, f"{queue} has {found} messages, not {depth}"
        await asyncio.sleep(0.01)


async def test_what_is_declared_is_there_and_messages_go_their_ways(broker: Broker) -> None:
    await broker.declare(SHOP)
    await broker.check(SHOP)

    for exchange, key in [("outbox", "user.created"), ("outbox", "order.a.b"), ("outbox.delay_1s", QUEUE)]:
        assert await publish(broker, exchange, key) == [CONFIRMED]
    assert await publish(broker, "outbox.dlx", QUEUE) == [CONFIRMED]

    await until_depth(broker, QUEUE, 3)
    await until_depth(broker, "shop.mail.dlq", 1)


async def test_declaring_again_changes_nothing(broker: Broker) -> None:
    await broker.declare(SHOP)
    await publish(broker, "outbox", "user.created")
    await broker.declare(SHOP)
    await until_depth(broker, QUEUE, 1)


async def test_a_queue_deleted_by_hand_comes_back_with_its_bindings(
    broker: Broker, channel: AbstractChannel
) -> None:
    await broker.declare(SHOP)
    await channel.queue_delete(QUEUE)
    await broker.declare(SHOP)
    assert await publish(broker, "outbox", "user.created") == [CONFIRMED]
    await until_depth(broker, QUEUE, 1)


async def test_a_check_names_all_that_is_missing_at_once_and_makes_nothing(broker: Broker) -> None:
    for _ in range(2):
        with pytest.raises(TopologyMissingError) as caught:
            await broker.check(SHOP)
        assert str(caught.value) == (
            f"missing on the broker: {', '.join(EVERY_NAME)}; declare them "
            "(the operator's resources or a self-declaring process do), or correct the names"
        )


async def test_a_check_names_the_one_that_is_missing(broker: Broker, channel: AbstractChannel) -> None:
    await broker.declare(SHOP)
    await channel.queue_delete("outbox.delay_1s")
    with pytest.raises(TopologyMissingError, match='missing on the broker: queue "outbox.delay_1s"; declare'):
        await broker.check(SHOP)
    assert broker.is_connected


async def test_a_queue_with_other_arguments_is_named_with_both_values(broker: Broker) -> None:
    await broker.declare(SHOP)
    tier = Queue("outbox.delay_1s", (("x-message-ttl", 2000), ("x-queue-type", "quorum")))
    other = replace(SHOP, queues=(tier,), bindings=())

    with pytest.raises(TopologyConflictError) as caught:
        await broker.declare(other)

    text = str(caught.value)
    assert text.startswith('queue "outbox.delay_1s" exists as something else (PRECONDITION_FAILED')
    assert "received" in text
    assert "but current is" in text
    assert text.endswith("; delete it or choose another name")


@pytest.mark.parametrize("provisioned", [False, True])
async def test_a_user_who_may_configure_nothing_works_where_all_is_there(
    services: Services, broker: Broker, rabbitmq_url: str, provisioned: bool
) -> None:
    await broker.declare(SHOP)
    write = r"^(outbox|outbox\.delay_.*)$"
    with restricted(services, rabbitmq_url, write=write) as url:
        async with Broker(url, name="test") as one:
            await (one.check(SHOP) if provisioned else one.declare(SHOP))
            assert await publish(one, "outbox", "user.created") == [CONFIRMED]
            await until_depth(one, QUEUE, 1)


async def test_what_is_missing_and_may_not_be_made_is_named_with_the_permission(
    services: Services, broker: Broker, channel: AbstractChannel, rabbitmq_url: str
) -> None:
    await broker.declare(SHOP)
    await channel.queue_delete(QUEUE)
    await channel.queue_delete("shop.mail.dlq")
    with restricted(services, rabbitmq_url, write=".*") as url:
        async with Broker(url, name="test") as one:
            with pytest.raises(TopologyMissingError) as caught:
                await one.declare(SHOP)
            assert one.is_connected
    text = str(caught.value)
    assert text.startswith("missing on the broker, and the user may not make them: ")
    assert 'queue "shop.mail.dlq" (ACCESS_REFUSED' in text
    assert 'queue "shop.mail" (ACCESS_REFUSED' in text
    assert "exchange" not in text
    assert text.endswith("give the user the configure permission, or have somebody make them who has it")


async def test_a_binding_that_may_be_made_is_made_where_the_rest_may_not(
    services: Services, broker: Broker, channel: AbstractChannel, rabbitmq_url: str
) -> None:
    await broker.declare(SHOP)
    await (await channel.get_queue(QUEUE)).unbind("outbox", "user.*")
    with restricted(services, rabbitmq_url, write=".*") as url:
        async with Broker(url, name="test") as one:
            await one.declare(SHOP)
    assert await publish(broker, "outbox", "user.created") == [CONFIRMED]


async def test_declaring_leaves_no_channel_behind(broker: Broker) -> None:
    await broker.declare(SHOP)
    await broker.check(SHOP)
    await broker.depth(QUEUE)
    async with asyncio.timeout(DEADLINE):
        while getattr(broker._transport, "channels", None):
            await asyncio.sleep(0.01)


async def test_a_binding_to_what_is_not_there_is_an_error_that_names_it(broker: Broker) -> None:
    lost = replace(SHOP, bindings=(Binding("nowhere", QUEUE, "#"),))
    with pytest.raises(
        BrokerLostError, match='binding of queue "shop.mail" to exchange "nowhere": .*NOT_FOUND'
    ):
        await broker.declare(lost)


async def test_the_depth_is_that_of_what_waits(broker: Broker) -> None:
    with pytest.raises(QueueMissingError, match='queue "shop.mail" .*NOT_FOUND'):
        await broker.depth(QUEUE)
    await broker.declare(SHOP)
    assert await broker.depth(QUEUE) == 0
    for _ in range(3):
        await publish(broker, "outbox", "user.created")
    await until_depth(broker, QUEUE, 3)


async def test_a_private_queue_holds_the_latest_and_goes_with_its_consumer(broker: Broker) -> None:
    await broker.declare(SHOP)
    await broker.private_queue("private", "outbox", ["user.*", "order.#"], 2)
    publisher = await broker.publisher()
    messages = [Message(key, b"", key) for key in ("user.a", "order.b.c", "user.d")]
    assert await publisher.publish("outbox", messages, DEADLINE) == [CONFIRMED] * 3
    assert (await broker.depth(QUEUE), await broker.depth("private")) == (3, 2)

    received: list[str] = []
    consumer = await broker.consumer("private", 10, lambda each: received.append(each.message.routing_key))
    async with asyncio.timeout(DEADLINE):
        while len(received) < 2:
            await asyncio.sleep(0.01)
    await consumer.aclose()

    assert received == ["order.b.c", "user.d"]
    with pytest.raises(QueueMissingError):
        async with asyncio.timeout(DEADLINE):
            while True:
                await broker.depth("private")
    assert await broker.depth(QUEUE) == 3
