"""One suite for both publishers, on a real broker: each message gets the outcome that it had."""

import asyncio
import gc
import logging
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage

from outbox.topology import Exchange, Topology
from outbox_cli.local import Services
from outbox_core.batch_publisher import BatchPublisher
from outbox_core.broker import Broker
from outbox_core.broker_errors import (
    AccessRefusedError,
    BrokerLostError,
    ExchangeMissingError,
    MessageRefusedError,
    MessageTooLargeError,
    PublishTimeoutError,
)
from outbox_core.publisher import CONFIRMED, NACKED, Message, Publisher, RareProperties, Returned, Unencodable
from tests.integration.administrator import suspended_queue
from tests.integration.relaying import until

DEADLINE = 30.0
EXCHANGE = "outbox"
TOPOLOGY = Topology(exchanges=(Exchange(EXCHANGE, "topic"),), queues=(), bindings=())
NO_ROUTE = Returned(312, "NO_ROUTE")
LARGER_THAN_THE_BROKER_TAKES = 134_217_728 + 1
QUORUM = {"x-queue-type": "quorum"}
HEADERS: dict[str, object] = {
    "text": "schön",
    "yes": True,
    "number": -(2**40),
    "half": 0.5,
    "nothing": None,
    "list": ["a", 1, {"b": [True]}],
    "table": {"a": {"b": "c"}},
}


def message(routing_key: str = "known.key", **fields: Any) -> Message:
    properties: dict[str, Any] = {"body": b"{}", "message_id": str(uuid.uuid4()), "timestamp": 1_700_000_000}
    return Message(routing_key=routing_key, **(properties | fields))


@pytest.fixture(params=["batch", "given", "plain"])
def kind(request: pytest.FixtureRequest) -> str:
    """In a batch on a connection of our own, or on one of aio-pika's, and one by one."""
    return str(request.param)


@pytest.fixture
def plain(kind: str) -> bool:
    return kind == "plain"


@pytest.fixture
async def broker(rabbitmq_url: str, kind: str) -> AsyncIterator[Broker]:
    async with AsyncExitStack() as stack:
        if kind == "given":
            connection = await stack.enter_async_context(await aio_pika.connect(rabbitmq_url))
            broker = Broker(connection=connection, name="test")
        else:
            broker = Broker(rabbitmq_url, name="test")
        await stack.enter_async_context(broker)
        await broker.declare(TOPOLOGY)
        yield broker


@pytest.fixture
async def publisher(broker: Broker, plain: bool) -> AsyncIterator[Publisher]:
    publisher = await broker.publisher(plain=plain)
    yield publisher
    await publisher.aclose()


@pytest.fixture
async def channel(rabbitmq_url: str) -> AsyncIterator[AbstractChannel]:
    """Another connection, to arrange things and to look at what arrived."""
    async with await aio_pika.connect(rabbitmq_url) as connection, connection.channel() as channel:
        yield channel


@pytest.fixture
async def queue(broker: Broker, channel: AbstractChannel) -> str:
    return await bound(channel, "q", QUORUM)


async def bound(channel: AbstractChannel, name: str, arguments: dict[str, Any], key: str = "known.#") -> str:
    queue = await channel.declare_queue(name, durable=True, arguments=arguments)
    await queue.bind(EXCHANGE, key)
    return name


async def arrivals(channel: AbstractChannel, queue: str, count: int) -> list[AbstractIncomingMessage]:
    """The next messages of `queue`, acknowledged."""
    arrived: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
    source = await channel.get_queue(queue)
    tag = await source.consume(arrived.put, no_ack=True)
    async with asyncio.timeout(DEADLINE):
        messages = [await arrived.get() for _ in range(count)]
    await source.cancel(tag)
    assert arrived.empty()
    return messages


def as_sent(arrived: AbstractIncomingMessage) -> Message:
    """What arrived, in the words of what was sent."""
    assert arrived.delivery_mode == aio_pika.DeliveryMode.PERSISTENT
    assert isinstance(arrived.timestamp, datetime)
    expiration = arrived.expiration
    assert expiration is None or isinstance(expiration, int | float)
    return Message(
        routing_key=arrived.routing_key or "",
        body=arrived.body,
        message_id=arrived.message_id or "",
        timestamp=int(arrived.timestamp.astimezone(UTC).timestamp()),
        content_type=arrived.content_type,
        headers=dict(arrived.headers),
        expiration_ms=None if expiration is None else round(expiration * 1000),
    )


async def test_a_thousand_messages_arrive_in_order_and_as_they_were(
    publisher: Publisher, channel: AbstractChannel, queue: str
) -> None:
    sent = [
        message(
            f"known.{number % 7}",
            body=b"%d" % number,
            content_type="application/json" if number % 2 else None,
            headers=HEADERS | {"number": number} if number % 3 else {},
            expiration_ms=3_600_001 + number if number % 5 else None,
        )
        for number in range(1000)
    ]

    assert await publisher.publish(EXCHANGE, sent, DEADLINE) == [CONFIRMED] * 1000

    assert [as_sent(arrived) for arrived in await arrivals(channel, queue, 1000)] == sent


async def test_nothing_to_publish_is_nothing_published(publisher: Publisher) -> None:
    assert await publisher.publish(EXCHANGE, [], DEADLINE) == []


async def test_an_unroutable_message_is_returned_while_the_others_are_confirmed(
    publisher: Publisher, channel: AbstractChannel, queue: str
) -> None:
    # With bodies of no frame, one and several: the broker sends them back.
    sizes = [0, 10, 300_000]
    batch = [message(key, body=b"x" * size) for size in sizes for key in ("known.key", "nobody.listens")]

    assert await publisher.publish(EXCHANGE, batch, DEADLINE) == [CONFIRMED, NO_ROUTE] * 3
    assert len(await arrivals(channel, queue, 3)) == 3


async def test_a_whole_batch_can_be_returned(publisher: Publisher) -> None:
    batch = [message("nobody.listens") for _ in range(500)]
    assert await publisher.publish(EXCHANGE, batch, DEADLINE) == [NO_ROUTE] * 500


async def test_of_messages_with_one_id_each_has_its_own_outcome(publisher: Publisher, queue: str) -> None:
    keys = ["known.key", "nobody.listens", "known.key", "nobody.else", "nobody.else"]
    batch = [message(key, message_id="the same") for key in keys]

    outcomes = await publisher.publish(EXCHANGE, batch, DEADLINE)

    assert outcomes == [CONFIRMED, NO_ROUTE, CONFIRMED, NO_ROUTE, NO_ROUTE]


@pytest.mark.parametrize("kind", ["quorum", "classic"])
async def test_a_full_queue_refuses_and_others_do_not(
    publisher: Publisher, channel: AbstractChannel, broker: Broker, kind: str
) -> None:
    limits = {"x-queue-type": kind, "x-max-length": 1, "x-overflow": "reject-publish"}
    await bound(channel, "full", limits, key="full.key")
    await bound(channel, "roomy", QUORUM)

    # A quorum queue takes a few more than its limit.
    async with asyncio.timeout(DEADLINE):
        while await publisher.publish(EXCHANGE, [message("full.key")], DEADLINE) == [CONFIRMED]:
            pass

    batch = [message(key) for key in ("known.key", "full.key", "known.key", "full.key")]
    assert await publisher.publish(EXCHANGE, batch, DEADLINE) == [CONFIRMED, NACKED, CONFIRMED, NACKED]


async def test_a_body_larger_than_a_frame_arrives_whole(
    publisher: Publisher, channel: AbstractChannel, queue: str
) -> None:
    body = bytes(range(256)) * (16 * 2**20 // 256)

    outcomes = await publisher.publish(EXCHANGE, [message(), message(body=body), message()], DEADLINE)

    assert outcomes == [CONFIRMED] * 3
    assert (await arrivals(channel, queue, 3))[1].body == body


async def test_what_cannot_be_encoded_is_not_sent_and_stops_nobody(
    broker: Broker, plain: bool, channel: AbstractChannel, queue: str
) -> None:
    publisher = await broker.publisher(plain=plain, max_message_size=1000)
    batch = [
        message(headers={"id": uuid.UUID(int=1)}),
        message(),
        message("known." + "x" * 250),
        message(body=b"x" * 1001),
        message("nobody.listens"),
        message(expiration_ms=2**32),
        message(headers={"nan": float("nan")}),
        message(),
    ]

    outcomes = await publisher.publish(EXCHANGE, batch, DEADLINE)

    reasons = [outcome.reason for outcome in outcomes if isinstance(outcome, Unencodable)]
    assert [type(outcome) for outcome in outcomes[:2]] == [Unencodable, type(CONFIRMED)]
    assert outcomes[4] == NO_ROUTE
    assert outcomes[7] == CONFIRMED
    assert [reason.split(" ")[:2] for reason in reasons] == [
        ["header", "'id':"],
        ["the", "routing"],
        ["the", "body"],
        ["the", "expiration"],
        ["header", "'nan':"],
    ]
    assert len(await arrivals(channel, queue, 2)) == 2
    assert await publisher.publish(EXCHANGE, [message(body=b"x" * 1001)], DEADLINE) == [outcomes[3]]


async def test_a_missing_exchange_is_named_and_only_that_channel_is_lost(
    publisher: Publisher, broker: Broker, plain: bool, queue: str
) -> None:
    other = await broker.publisher(plain=plain)

    with pytest.raises(ExchangeMissingError, match='exchange "nowhere" does not exist; declare it'):
        await publisher.publish("nowhere", [message(), message()], DEADLINE)

    assert not publisher.is_usable
    with pytest.raises(BrokerLostError):
        await publisher.publish(EXCHANGE, [message()], DEADLINE)
    assert other.is_usable
    assert await other.publish(EXCHANGE, [message()], DEADLINE) == [CONFIRMED]


async def test_a_message_larger_than_the_broker_takes_is_found_one_by_one(
    publisher: Publisher, broker: Broker, plain: bool, queue: str
) -> None:
    large = message(body=bytes(LARGER_THAN_THE_BROKER_TAKES))

    with pytest.raises(MessageTooLargeError, match="message size 134217729 is larger than"):
        await publisher.publish(EXCHANGE, [message(), large], DEADLINE)

    again = await broker.publisher(plain=plain)
    assert await again.publish(EXCHANGE, [message()], DEADLINE) == [CONFIRMED]
    with pytest.raises(MessageTooLargeError):
        await again.publish(EXCHANGE, [large], DEADLINE)


async def test_a_message_that_the_broker_refuses_is_told_from_a_lost_broker(
    publisher: Publisher, queue: str
) -> None:
    # RabbitMQ routes by this header too, and wants a list of texts in it.
    with pytest.raises(MessageRefusedError, match='exchange "outbox": .*unacceptable_type_in_header'):
        await publisher.publish(EXCHANGE, [message(), message(headers={"CC": "x"})], DEADLINE)


async def test_a_missing_permission_is_named(publisher: Publisher, channel: AbstractChannel) -> None:
    # Nobody may publish to an internal exchange.
    await channel.declare_exchange("inside", aio_pika.ExchangeType.TOPIC, internal=True)

    with pytest.raises(AccessRefusedError, match='exchange "inside": ACCESS_REFUSED'):
        await publisher.publish("inside", [message()], DEADLINE)


async def test_calls_may_overlap_on_one_publisher(
    publisher: Publisher, channel: AbstractChannel, queue: str
) -> None:
    keys = ["known.key", "nobody.listens"]
    batches = [[message(keys[(number + place) % 2]) for place in range(20)] for number in range(30)]

    async def publish(batch: Sequence[Message]) -> None:
        outcomes = await publisher.publish(EXCHANGE, batch, DEADLINE)
        assert outcomes == [CONFIRMED if m.routing_key == "known.key" else NO_ROUTE for m in batch]

    async with asyncio.TaskGroup() as group:
        for batch in batches:
            group.create_task(publish(batch))

    assert len(await arrivals(channel, queue, 300)) == 300


async def test_several_publishers_do_not_mix_their_answers_up(
    broker: Broker, plain: bool, channel: AbstractChannel, queue: str
) -> None:
    async def lane(key: str, outcome: object) -> None:
        publisher = await broker.publisher(plain=plain)
        for _ in range(5):
            outcomes = await publisher.publish(EXCHANGE, [message(key) for _ in range(50)], DEADLINE)
            assert outcomes == [outcome] * 50
        await publisher.aclose()

    async with asyncio.TaskGroup() as group:
        for key, outcome in [("known.a", CONFIRMED), ("nobody", NO_ROUTE), ("known.b", CONFIRMED)]:
            group.create_task(lane(key, outcome))

    assert len(await arrivals(channel, queue, 500)) == 500


async def test_a_call_that_is_cancelled_leaves_the_others_their_answers(
    publisher: Publisher, queue: str
) -> None:
    cancelled = asyncio.create_task(publisher.publish(EXCHANGE, [message("nobody")] * 100, DEADLINE))
    await asyncio.sleep(0)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled

    assert await publisher.publish(EXCHANGE, [message()] * 3, DEADLINE) == [CONFIRMED] * 3


async def test_a_queue_that_does_not_confirm_keeps_no_answer_from_others(
    broker: Broker, plain: bool, channel: AbstractChannel, services: Services, rabbitmq_url: str
) -> None:
    for name in ("stuck", "free"):
        await bound(channel, name, {}, name)
    keys = ["stuck", "free", "nobody.listens"]
    async with suspended_queue(services, rabbitmq_url, "stuck"):
        kept, closed = [await broker.publisher(plain=plain) for _ in range(2)]
        kept_answers, closed_answers = [
            await publisher.send(EXCHANGE, [message(key) for key in keys], DEADLINE, 0.2)
            for publisher in (kept, closed)
        ]
        for answers in (kept_answers, closed_answers):
            await until(lambda: None not in answers.outcomes[1:], "the answers for the others")  # noqa: B023
            assert answers.lost is None
        await closed.aclose()
        assert isinstance(closed_answers.lost, BrokerLostError)
    await until(lambda: kept_answers.outcomes[0] is not None, "the late answer")
    assert [*kept_answers.outcomes] == [CONFIRMED, CONFIRMED, NO_ROUTE]
    assert [*closed_answers.outcomes] == [None, CONFIRMED, NO_ROUTE]


async def test_after_a_timeout_the_publisher_is_used_up(publisher: Publisher, queue: str) -> None:
    with pytest.raises(PublishTimeoutError, match='exchange "outbox": .* all of 2 messages within 0 s'):
        await publisher.publish(EXCHANGE, [message(), message()], 0)

    assert not publisher.is_usable
    with pytest.raises(BrokerLostError):
        await publisher.publish(EXCHANGE, [message()], DEADLINE)


async def test_a_timeout_lets_go_of_the_other_calls_too(publisher: Publisher, queue: str) -> None:
    large = [message(body=bytes(16 * 2**20)) for _ in range(4)]
    other = asyncio.create_task(publisher.publish(EXCHANGE, large, DEADLINE))
    await asyncio.sleep(0)

    with pytest.raises(PublishTimeoutError):
        await publisher.publish(EXCHANGE, [message()], 0)
    await publisher.aclose()

    with pytest.raises(BrokerLostError):
        await other


async def test_closing_lets_go_of_whoever_waits(publisher: Publisher, queue: str) -> None:
    waiting = asyncio.create_task(
        publisher.publish(EXCHANGE, [message(body=bytes(16 * 2**20))] * 4, DEADLINE)
    )
    await asyncio.sleep(0)
    await publisher.aclose()
    await publisher.aclose()

    with pytest.raises(BrokerLostError):
        await waiting


async def test_closing_frees_the_channel(
    broker: Broker, plain: bool, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    """On the broker and here: opened and closed for ever, numbers and memory must not run out."""
    transport: Any = broker._transport
    caplog.clear()
    for _ in range(20):
        publisher = await broker.publisher(plain=plain)
        assert await publisher.publish(EXCHANGE, [message()], DEADLINE) == [CONFIRMED]
        await publisher.aclose()

    async with asyncio.timeout(DEADLINE):
        while transport.channels:
            await asyncio.sleep(0.01)
    gc.collect()
    assert broker.is_connected
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_the_fast_publisher_is_the_default(broker: Broker) -> None:
    assert isinstance(await broker.publisher(), BatchPublisher)


async def test_a_message_of_somebody_else_is_sent_on_as_it_is(
    publisher: Publisher, plain: bool, channel: AbstractChannel, queue: str
) -> None:
    rare = RareProperties(
        content_encoding="gzip",
        priority=3,
        correlation_id="c",
        reply_to="somewhere",
        type="order.placed",
        app_id="shop",
        cluster_id="k",
        user_id="somebody else, which the broker would refuse",
        delivery_mode=1,
    )
    theirs = message(message_id=None, timestamp=None, headers={"raw": bytearray(b"\xff")}, rare=rare)

    assert await publisher.publish(EXCHANGE, [theirs, theirs], DEADLINE) == [CONFIRMED, CONFIRMED]
    nowhere = message("nobody.listens", message_id=None)
    assert await publisher.publish(EXCHANGE, [nowhere], DEADLINE) == [NO_ROUTE]

    arrived, _ = await arrivals(channel, queue, 2)
    assert (arrived.content_encoding, arrived.priority, arrived.correlation_id) == ("gzip", 3, "c")
    assert (arrived.reply_to, arrived.type, arrived.app_id) == ("somewhere", "order.placed", "shop")
    assert (arrived.user_id, arrived.timestamp, arrived.headers) == (None, None, {"raw": bytearray(b"\xff")})
    assert arrived.delivery_mode == aio_pika.DeliveryMode.PERSISTENT
    # aiormq makes up an id, and aio-pika knows of no cluster.
    assert plain or (arrived.message_id, arrived.cluster_id) == (None, "k")
