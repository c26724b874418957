"""The described topology on a real broker: it is accepted, and messages go where the description says."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage, AbstractQueue
from aio_pika.exceptions import DeliveryError

from outbox.topology import DELIVERY_LIMIT, Subscription, Topology, dead_letter_queue, tier_name, topology
from tests.integration.relaying import Inbox, traffic_between

DEADLINE_SECONDS = 15.0
QUEUE = "shop.mail"
TIER = timedelta(milliseconds=300)
SHOP = topology("outbox", [Subscription(QUEUE, ("user.*",), (TIER, timedelta(seconds=1)))])


async def declare(channel: AbstractChannel, made: Topology) -> None:
    for exchange in made.exchanges:
        await channel.declare_exchange(exchange.name, exchange.kind, durable=True)
    for queue in made.queues:
        await channel.declare_queue(queue.name, durable=True, arguments=queue.arguments)
    for binding in made.bindings:
        bound = await channel.get_queue(binding.queue)
        await bound.bind(binding.exchange, binding.routing_key)


async def publish(channel: AbstractChannel, exchange: str, routing_key: str, body: bytes = b"{}") -> None:
    to = await channel.get_exchange(exchange)
    message = aio_pika.Message(body, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
    await to.publish(message, routing_key, mandatory=True, timeout=DEADLINE_SECONDS)


async def arrival(channel: AbstractChannel, queue: str) -> AbstractIncomingMessage:
    """The next message of `queue`, unacknowledged; consumed, because `basic.get` would need polling."""
    source: AbstractQueue = await channel.get_queue(queue)
    arrived: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
    tag = await source.consume(arrived.put)
    try:
        return await asyncio.wait_for(arrived.get(), DEADLINE_SECONDS)
    except TimeoutError:
        pytest.fail(f"no message arrived in {queue} within {DEADLINE_SECONDS:g} s")
    finally:
        await source.cancel(tag)


@pytest.fixture
async def connection(rabbitmq_url: str) -> AsyncIterator[AbstractConnection]:
    async with await aio_pika.connect(rabbitmq_url, timeout=DEADLINE_SECONDS) as connection:
        yield connection


@pytest.fixture
async def channel(connection: AbstractConnection) -> AbstractChannel:
    """A channel on which an unroutable message is an error, with `SHOP` declared."""
    channel = await connection.channel(on_return_raises=True)
    await channel.set_qos(prefetch_count=1)
    await declare(channel, SHOP)
    return channel


async def test_a_message_reaches_the_queue_by_its_topic(channel: AbstractChannel) -> None:
    await publish(channel, "outbox", "user.created", b"hello")
    message = await arrival(channel, QUEUE)
    assert (message.body, message.routing_key) == (b"hello", "user.created")
    await message.ack()


async def test_a_rejected_message_reaches_the_dead_letter_queue(channel: AbstractChannel) -> None:
    await publish(channel, "outbox", "user.created", b"bad")
    await (await arrival(channel, QUEUE)).reject(requeue=False)
    message = await arrival(channel, dead_letter_queue(QUEUE))
    assert (message.body, message.routing_key) == (b"bad", QUEUE)
    await message.ack()


async def test_a_message_in_a_tier_comes_back_to_its_queue_after_the_delay(channel: AbstractChannel) -> None:
    loop = asyncio.get_running_loop()
    started = loop.time()
    await publish(channel, tier_name("outbox", TIER), QUEUE, b"again")
    message = await arrival(channel, QUEUE)
    assert (
        loop.time() - started >= TIER.total_seconds() * 0.9
    )  # the two clocks need not agree to the millisecond
    assert (message.body, message.routing_key) == (b"again", QUEUE)
    await message.ack()


async def test_declaring_twice_is_accepted(channel: AbstractChannel) -> None:
    await declare(channel, SHOP)


async def test_a_listener_that_joins_leaves_what_is_there_alone(channel: AbstractChannel) -> None:
    await publish(channel, "outbox", "user.created", b"before")
    both = [
        Subscription(QUEUE, ("user.*",), (TIER, timedelta(seconds=1))),
        Subscription("shop.audit", ("#",), (timedelta(seconds=2),)),
    ]
    await declare(channel, topology("outbox", both))
    message = await arrival(channel, QUEUE)
    assert message.body == b"before"
    await message.ack()


async def test_a_dead_letter_survives_being_looked_at_fifty_times(channel: AbstractChannel) -> None:
    await publish(channel, "outbox.dlx", QUEUE, b"kept")
    for _ in range(50):
        await (await arrival(channel, dead_letter_queue(QUEUE))).nack(requeue=True)
    message = await arrival(channel, dead_letter_queue(QUEUE))
    assert message.body == b"kept"
    await message.ack()


async def test_a_message_that_is_never_answered_is_dead_lettered_at_the_delivery_limit(
    connection: AbstractConnection, channel: AbstractChannel
) -> None:
    await publish(channel, "outbox", "user.created", b"poison")
    for _ in range(DELIVERY_LIMIT + 1):
        async with connection.channel() as dying:
            await arrival(dying, QUEUE)
    message = await arrival(channel, dead_letter_queue(QUEUE))
    assert message.body == b"poison"
    await message.ack()


async def test_the_longest_names_are_accepted(channel: AbstractChannel) -> None:
    longest = Subscription("q" * 251, ("k" * 255,), (timedelta(milliseconds=86_399_999),))
    await declare(channel, topology("x" * 110, [longest]))


async def test_of_two_consumers_of_an_ordered_queue_only_the_first_gets_messages(
    connection: AbstractConnection, channel: AbstractChannel
) -> None:
    await declare(channel, topology("outbox", [Subscription("shop.ledger", ("paid",), (), ordered=True)]))
    arrived: asyncio.Queue[tuple[str, AbstractIncomingMessage]] = asyncio.Queue()
    for name in ("first", "second"):
        consuming = await connection.channel()
        await consuming.set_qos(prefetch_count=1)
        queue = await consuming.get_queue("shop.ledger")

        async def take(message: AbstractIncomingMessage, name: str = name) -> None:
            await arrived.put((name, message))

        await queue.consume(take)
    for body in (b"1", b"2", b"3"):
        await publish(channel, "outbox", "paid", body)
    taken = []
    async with asyncio.timeout(DEADLINE_SECONDS):
        for _ in range(3):
            name, message = await arrived.get()
            taken.append((name, message.body))
            await message.ack()
    assert taken == [("first", b"1"), ("first", b"2"), ("first", b"3")]


async def test_a_full_queue_refuses_and_the_relay_keeps_the_rows(
    channel: AbstractChannel, postgres_url: str, rabbitmq_url: str
) -> None:
    async with traffic_between(postgres_url, rabbitmq_url) as traffic:
        small = Subscription("shop.small", ("a",), (), max_length=3)
        await declare(channel, topology(traffic.exchange_name, [small]))
        emitted = await traffic.emit_many(20)
        await traffic.relaying(batch_size=1)
        await traffic.until_table(
            "EXISTS (SELECT FROM outbox_table WHERE attempts > 1)", "a row to be refused twice"
        )
        assert await traffic.ids()
        assert not await traffic.ids("parked_at IS NOT NULL")
        inbox = Inbox(await channel.get_queue(small.queue), traffic.until)
        await inbox.open()
        await inbox.gets(emitted)
        await traffic.until_ids([])


async def test_a_queue_limited_in_bytes_refuses(channel: AbstractChannel) -> None:
    small = Subscription("shop.small", ("small",), (), max_bytes=1000)
    await declare(channel, topology("outbox", [small]))
    with pytest.raises(DeliveryError):
        # The queue may take a few more before it has noticed.
        for _ in range(100):
            await publish(channel, "outbox", "small", b"x" * 500)


async def test_a_delivery_limit_of_its_own_is_kept(
    connection: AbstractConnection, channel: AbstractChannel
) -> None:
    careful = Subscription("shop.careful", ("careful",), (), delivery_limit=2)
    await declare(channel, topology("outbox", [careful]))
    await publish(channel, "outbox", "careful", b"poison")
    for _ in range(3):
        async with connection.channel() as dying:
            await arrival(dying, careful.queue)
    message = await arrival(channel, dead_letter_queue(careful.queue))
    assert message.body == b"poison"
    await message.ack()
