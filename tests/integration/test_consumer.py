"""One suite for both consumers, on a real broker: each message is handed out, and settled as it was said."""

import asyncio
import random
import struct
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel
from aiormq.abc import AbstractChannel as Underlay
from pamqp import commands

from outbox_cli.local import Services
from outbox_core import aiormq_internals
from outbox_core.batch_consumer import BatchConsumer
from outbox_core.broker import Broker
from outbox_core.broker_errors import (
    AccessRefusedError,
    BrokerLostError,
    ConsumerCancelledError,
    QueueMissingError,
)
from outbox_core.consumer import Consumer, Received
from outbox_core.header_tables import DecodingError
from outbox_core.plain_consumer import PlainConsumer
from outbox_core.publisher import CONFIRMED, Message, RareProperties
from tests.integration.administrator import connection_names, management, user_without_rights

DEADLINE = 60.0
QUEUE, DEAD = "q", "q.dead"
DEFAULT_EXCHANGE = ""
ARGUMENTS: dict[str, Any] = {
    "x-queue-type": "quorum",
    # From RabbitMQ 4 on there is a limit of 20 unless another is set.
    "x-delivery-limit": 100,
    "x-dead-letter-exchange": DEFAULT_EXCHANGE,
    "x-dead-letter-routing-key": DEAD,
}


async def until(reached: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + DEADLINE
    while not reached():
        assert time.monotonic() < deadline, f"not within {DEADLINE:g} s: {what}"
        await asyncio.sleep(0.01)


class Inbox:
    """What a consumer has handed out, and the consumer."""

    def __init__(self, then: Callable[["Inbox", Received], object] | None = None) -> None:
        self.received: list[Received] = []
        self.consumer: Consumer = None  # type: ignore[assignment] # set before anything is handed out
        self._then = then

    def __call__(self, received: Received) -> None:
        self.received.append(received)
        if self._then:
            self._then(self, received)

    @property
    def bodies(self) -> list[bytes]:
        return [received.message.body for received in self.received]

    async def gets(self, count: int) -> list[Received]:
        """The deliveries, once there are so many; no more may have come."""
        await until(lambda: len(self.received) >= count, f"{count} deliveries")
        assert len(self.received) == count
        return self.received


def ack(inbox: Inbox, received: Received) -> None:
    assert inbox.consumer.ack(received)


Opener = Callable[..., Awaitable[Inbox]]


@pytest.fixture(params=["batch", "plain"])
def plain(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "plain")


@pytest.fixture
async def broker(rabbitmq_url: str) -> AsyncIterator[Broker]:
    async with Broker(rabbitmq_url, name=f"test@{uuid.uuid4()}") as broker:
        yield broker


@pytest.fixture
async def channel(rabbitmq_url: str) -> AsyncIterator[AbstractChannel]:
    """Another connection, to arrange things."""
    async with await aio_pika.connect(rabbitmq_url) as connection, connection.channel() as channel:
        yield channel


@pytest.fixture(autouse=True)
async def queues(channel: AbstractChannel) -> None:
    await channel.declare_queue(QUEUE, durable=True, arguments=ARGUMENTS)
    await channel.declare_queue(DEAD, durable=True, arguments={"x-queue-type": "quorum"})


async def open_inbox(
    broker: Broker,
    plain: bool,
    *,
    queue: str = QUEUE,
    prefetch_count: int = 100,
    then: Callable[[Inbox, Received], object] | None = None,
) -> Inbox:
    inbox = Inbox(then)
    inbox.consumer = await broker.consumer(queue, prefetch_count, inbox, plain=plain)
    return inbox


async def send(broker: Broker, *bodies: bytes, queue: str = QUEUE) -> None:
    publisher = await broker.publisher()
    messages = [Message(queue, body, str(uuid.uuid4()), 1_700_000_000) for body in bodies]
    for start in range(0, len(messages), 1000):
        outcomes = await publisher.publish(DEFAULT_EXCHANGE, messages[start : start + 1000], DEADLINE)
        assert set(outcomes) == {CONFIRMED}
    await publisher.aclose()


async def until_depth(broker: Broker, depth: int, queue: str = QUEUE) -> None:
    """Until so many messages are ready: an ack has no answer, and a requeued message may be on its way."""
    deadline = time.monotonic() + DEADLINE
    while (found := await broker.depth(queue)) != depth:
        assert time.monotonic() < deadline, f"{queue} has {found} messages, not {depth}"
        await asyncio.sleep(0.01)


async def rest(rabbitmq_url: str) -> list[Received]:
    """What the queue still has for a connection that comes afterwards."""
    async with Broker(rabbitmq_url, name="afterwards") as broker:
        inbox = await open_inbox(broker, plain=False, prefetch_count=10_000, then=ack)
        await send(broker, b"the last")
        await until(lambda: b"the last" in inbox.bodies, "the last message")
        await inbox.consumer.aclose()
        return inbox.received[:-1]


async def underlay(consumer: Consumer) -> Underlay:
    if isinstance(consumer, PlainConsumer):
        return await consumer._channel.get_underlay_channel()
    assert isinstance(consumer, BatchConsumer)
    return consumer._channel


async def raw_publish(channel: AbstractChannel, properties: commands.Basic.Properties, body: bytes) -> None:
    """With whatever properties, as clients of others may."""
    own = await channel.get_underlay_channel()
    await own.basic_publish(body, routing_key=QUEUE, properties=properties, timeout=DEADLINE)


# --- Deliveries ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 131_072 - 8, 131_072, 1_500_000])
async def test_a_body_of_any_size_arrives_whole(broker: Broker, plain: bool, size: int) -> None:
    body = random.Random(size).randbytes(size)  # noqa: S311 - no secret
    inbox = await open_inbox(broker, plain)
    await send(broker, body, b"next")

    first, second = await inbox.gets(2)

    assert (first.message.body, second.message.body) == (body, b"next")
    assert (first.tag, second.tag) == (1, 2)
    assert (first.exchange, first.redelivered) == ("", False)


async def test_every_property_and_every_type_of_header_arrives(
    broker: Broker, plain: bool, channel: AbstractChannel, rabbitmq_url: str
) -> None:
    headers: dict[str, Any] = {
        "t": True,
        "b": -5,
        "s": -3000,
        "u": 60_000,
        "I": -2_000_000_000,
        "i": 4_000_000_000,
        "l": -(2**40),
        "f": 0.5,
        "D": Decimal("12.50"),
        "S": "schön",
        "T": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "F": {"a": {"b": "c"}},
        "A": ["a", 1, [True, {"b": None}]],
        "x": bytearray(b"\x00\xff"),
        "V": None,
    }
    user = urlsplit(rabbitmq_url).username
    properties = commands.Basic.Properties(
        content_type="application/json",
        content_encoding="gzip",
        headers=headers,
        delivery_mode=1,
        priority=7,
        correlation_id="correlation",
        reply_to="somewhere",
        expiration="3600001",
        message_id="m-1",
        timestamp=datetime(2026, 1, 1, tzinfo=UTC),
        message_type="order.placed",
        user_id=user,
        app_id="shop",
    )
    properties.cluster_id = "cluster"
    await raw_publish(channel, properties, b"{}")

    (received,) = await (await open_inbox(broker, plain)).gets(1)

    assert received.message == Message(
        routing_key=QUEUE,
        body=b"{}",
        message_id="m-1",
        timestamp=1_767_225_600,
        content_type="application/json",
        headers=headers,
        expiration_ms=3_600_001,
        rare=RareProperties(
            content_encoding="gzip",
            priority=7,
            correlation_id="correlation",
            reply_to="somewhere",
            type="order.placed",
            app_id="shop",
            cluster_id="cluster",
            user_id=user,
            delivery_mode=1,
        ),
    )


async def test_a_message_without_any_property_arrives(
    broker: Broker, plain: bool, channel: AbstractChannel
) -> None:
    own: Any = await channel.get_underlay_channel()
    empty = struct.pack(">BHIHHQHB", 2, own.number, 14, 60, 0, 0, 0, 0xCE)
    publish = commands.Basic.Publish(routing_key=QUEUE)
    await aiormq_internals.write(own, aiormq_frame(own, publish) + empty)

    (received,) = await (await open_inbox(broker, plain)).gets(1)

    # aio-pika takes a message without a delivery mode for one that is not persistent.
    rare = RareProperties(delivery_mode=1 if plain else None)
    assert received.message == Message(QUEUE, b"", rare=rare)


def aiormq_frame(own: Any, frame: Any) -> bytes:
    from aiormq.abc import ChannelFrame

    return ChannelFrame.marshall(own.number, [frame]).payload


async def test_what_was_received_can_be_sent_again_and_loses_nothing(
    broker: Broker, plain: bool, channel: AbstractChannel
) -> None:
    rare = RareProperties(content_encoding="gzip", priority=3, correlation_id="c", reply_to="r", type="t")
    headers = {"text": "x", "time": datetime(2026, 1, 1, tzinfo=UTC), "raw": bytearray(b"\xff"), "n": 2**40}
    sent = Message(QUEUE, b"1", "m", 5, "text/plain", headers, 3_600_000, rare)
    publisher = await broker.publisher(plain=plain)
    inbox = await open_inbox(broker, plain, then=ack)
    assert await publisher.publish(DEFAULT_EXCHANGE, [sent], DEADLINE) == [CONFIRMED]
    (first,) = await inbox.gets(1)

    assert await publisher.publish(DEFAULT_EXCHANGE, [first.message], DEADLINE) == [CONFIRMED]

    _, second = await inbox.gets(2)
    assert first.message == second.message == sent


async def test_many_messages_arrive_in_order_wherever_the_reads_cut_them(broker: Broker, plain: bool) -> None:
    chance = random.Random(1)  # noqa: S311 - no secret
    bodies = [b"%d " % number + b"x" * chance.choice([0, 1, 7, 300, 9000]) for number in range(3000)]
    inbox = await open_inbox(broker, plain, then=ack)

    await send(broker, *bodies)

    await inbox.gets(3000)
    assert inbox.bodies == bodies


async def test_what_came_while_the_loop_was_busy_is_delivered(broker: Broker, plain: bool) -> None:
    inbox = await open_inbox(broker, plain, prefetch_count=1000)
    sending = asyncio.create_task(send(broker, *(b"%d" % number for number in range(500))))
    await until(lambda: inbox.received, "the first delivery")
    time.sleep(0.5)  # noqa: ASYNC251 - the loop is to be blocked

    await sending
    await inbox.gets(500)
    assert inbox.bodies == [b"%d" % number for number in range(500)]


async def test_nothing_is_delivered_before_the_consumer_is_there(broker: Broker, plain: bool) -> None:
    for _ in range(5):
        await send(broker, *[b"x"] * 50)
        # Each delivery is settled through the consumer: `ack` fails where there is none yet.
        inbox = await open_inbox(broker, plain, prefetch_count=10, then=ack)
        await inbox.gets(50)
        await inbox.consumer.aclose()


async def test_no_more_are_unsettled_than_the_prefetch(broker: Broker, plain: bool) -> None:
    inbox = await open_inbox(broker, plain, prefetch_count=5)
    await send(broker, *[b"x"] * 20)

    received = await inbox.gets(5)
    await until_depth(broker, 15)
    assert (len(inbox.received), inbox.consumer.unsettled) == (5, 5)

    assert inbox.consumer.ack(received[1])
    assert inbox.consumer.ack(received[3])
    await inbox.gets(7)
    await until_depth(broker, 13)
    assert (len(inbox.received), inbox.consumer.unsettled) == (7, 5)


async def test_a_callback_that_fails_stops_nobody(broker: Broker, plain: bool) -> None:
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))

    def fail_once(inbox: Inbox, received: Received) -> None:
        if received.message.body == b"bad":
            raise RuntimeError("no")
        ack(inbox, received)

    inbox = await open_inbox(broker, plain, then=fail_once)
    await send(broker, b"good", b"bad", b"good")

    await inbox.gets(3)
    assert inbox.consumer.is_usable
    assert inbox.consumer.unsettled == 1
    # aiormq logs it by itself.
    assert plain or [str(failure["exception"]) for failure in failures] == ["no"]


# --- Settling -----------------------------------------------------------------------------------------------


async def test_what_is_acked_never_comes_again(broker: Broker, plain: bool, rabbitmq_url: str) -> None:
    inbox = await open_inbox(broker, plain, then=ack)
    await send(broker, *[b"x"] * 300)
    await inbox.gets(300)
    assert inbox.consumer.unsettled == 0

    await inbox.consumer.aclose()
    await broker.aclose()

    assert await rest(rabbitmq_url) == []


async def test_what_is_not_settled_comes_again_and_says_so(
    broker: Broker, plain: bool, rabbitmq_url: str
) -> None:
    inbox = await open_inbox(broker, plain)
    await send(broker, b"1", b"2", b"3")
    _, second, _ = await inbox.gets(3)
    inbox.consumer.ack(second)

    await inbox.consumer.aclose()
    await broker.aclose()

    again = await rest(rabbitmq_url)
    assert [(one.message.body, one.redelivered) for one in again] == [(b"1", True), (b"3", True)]


async def test_a_requeued_message_comes_again_at_once(broker: Broker, plain: bool) -> None:
    def once(inbox: Inbox, received: Received) -> None:
        settle = inbox.consumer.ack if received.redelivered else inbox.consumer.requeue
        assert settle(received)

    inbox = await open_inbox(broker, plain, then=once)
    await send(broker, b"x")

    first, second = await inbox.gets(2)

    assert (first.redelivered, second.redelivered) == (False, True)
    assert first.message.body == second.message.body
    await inbox.consumer.aclose()
    await until_depth(broker, 0)


async def test_a_dead_lettered_message_goes_where_the_queue_says(broker: Broker, plain: bool) -> None:
    inbox = await open_inbox(broker, plain)
    dead = await open_inbox(broker, plain, queue=DEAD, then=ack)
    await send(broker, b"1", b"2", b"3")
    for received in await inbox.gets(3):
        settle = inbox.consumer.dead_letter if received.message.body == b"2" else inbox.consumer.ack
        assert settle(received)

    (found,) = await dead.gets(1)

    assert found.message.body == b"2"
    deaths: Any = found.message.headers["x-death"]
    assert (deaths[0]["queue"], deaths[0]["reason"]) == (QUEUE, "rejected")
    assert isinstance(deaths[0]["time"], datetime)


async def test_what_is_settled_already_cannot_be_settled_again(broker: Broker, plain: bool) -> None:
    """The broker would close the channel over it."""
    inbox = await open_inbox(broker, plain)
    await send(broker, b"1", b"2", b"3")
    one, two, three = await inbox.gets(3)
    consumer = inbox.consumer

    assert [consumer.ack(one), consumer.ack(one), consumer.requeue(one)] == [True, False, False]
    assert [consumer.dead_letter(two), consumer.ack(two)] == [True, False]
    await send(broker, b"4")
    await inbox.gets(4)
    assert [consumer.ack(one), consumer.dead_letter(two), consumer.ack(three)] == [False, False, True]
    await send(broker, b"5")
    await inbox.gets(5)
    assert consumer.is_usable


async def test_a_delivery_of_another_consumer_is_not_taken_for_ones_own(broker: Broker, plain: bool) -> None:
    """Tags count from 1 on each channel: an ack would lose the message that has the same number there."""
    first = await open_inbox(broker, plain, prefetch_count=1)
    await send(broker, b"1", b"2")
    (one,) = await first.gets(1)
    second = await open_inbox(broker, plain, prefetch_count=1)
    (two,) = await second.gets(1)
    assert one.tag == two.tag

    assert not second.consumer.ack(one)

    await second.consumer.aclose()
    await until_depth(broker, 1)
    assert second.consumer.unsettled == 1


async def test_thousands_settled_in_any_order_are_each_settled_as_asked(
    broker: Broker, plain: bool, rabbitmq_url: str
) -> None:
    chance = random.Random(7)  # noqa: S311 - no secret
    ids = [b"%d" % number for number in range(5000)]
    requeued_once = set(chance.sample(ids, 500))
    dead_lettered = set(chance.sample(sorted(set(ids) - requeued_once), 300))
    held: list[Received] = []
    seen: Counter[bytes] = Counter()
    done: list[bytes] = []

    def hold(inbox: Inbox, received: Received) -> None:
        held.append(received)
        seen[received.message.body] += 1
        if len(held) >= 50 or len(done) + len(held) == len(ids):
            settle(inbox)

    def settle(inbox: Inbox) -> None:
        chance.shuffle(held)
        # Some are kept for a later turn.
        keep = len(held) // 3 if len(done) + len(held) < len(ids) else 0
        while len(held) > keep:
            received = held.pop()
            body = received.message.body
            if body in requeued_once and seen[body] == 1:
                assert inbox.consumer.requeue(received)
            elif body in dead_lettered:
                assert inbox.consumer.dead_letter(received)
                done.append(body)
            else:
                assert inbox.consumer.ack(received)
                done.append(body)

    inbox = await open_inbox(broker, plain, prefetch_count=200, then=hold)
    await send(broker, *ids)
    await until(lambda: len(done) == len(ids), "everything settled")
    await inbox.consumer.aclose()

    assert sorted(done) == sorted(ids)
    assert {body for body, times in seen.items() if times == 2} == requeued_once
    assert set(seen.values()) == {1, 2}
    assert await rest(rabbitmq_url) == []
    await until_depth(broker, len(dead_lettered), DEAD)


# --- Stopping -----------------------------------------------------------------------------------------------


async def test_after_stopping_what_was_delivered_can_be_settled_and_no_more_comes(
    broker: Broker, plain: bool, rabbitmq_url: str
) -> None:
    bodies = [b"%d" % number for number in range(2000)]
    await send(broker, *bodies)
    inbox = await open_inbox(broker, plain, prefetch_count=300)
    consumer = inbox.consumer
    await until(lambda: inbox.received, "the first delivery")

    await consumer.stop()
    assert not consumer.is_usable
    delivered = list(inbox.received)
    await send(broker, b"more")
    # RabbitMQ hands a quorum queue 32 acks at once; what waits behind those goes with the channel.
    acked = [*delivered[:10], *delivered[10::20]][:30]
    for received in acked:
        assert consumer.ack(received)
    assert inbox.received == delivered
    assert consumer.unsettled == len(delivered) - len(acked)
    await consumer.stop()
    await consumer.aclose()
    await broker.aclose()

    left = [received.message.body for received in await rest(rabbitmq_url)]
    assert sorted(left) == sorted({*bodies, b"more"} - {received.message.body for received in acked})


async def test_what_is_acked_just_before_closing_is_acked(
    broker: Broker, plain: bool, rabbitmq_url: str
) -> None:
    inbox = await open_inbox(broker, plain)
    await send(broker, *(b"%d" % number for number in range(100)))
    received = await inbox.gets(100)
    for one in received[::2]:
        inbox.consumer.ack(one)
    await inbox.consumer.aclose()

    left = await rest(rabbitmq_url)
    assert [one.message.body for one in left] == [one.message.body for one in received[1::2]]


async def test_after_closing_nothing_can_be_settled(broker: Broker, plain: bool) -> None:
    inbox = await open_inbox(broker, plain)
    await send(broker, b"x")
    (received,) = await inbox.gets(1)

    await inbox.consumer.aclose()
    await inbox.consumer.aclose()

    assert not inbox.consumer.ack(received)
    assert not inbox.consumer.is_usable
    error = await inbox.consumer.wait_lost()
    assert (type(error), str(error)) == (BrokerLostError, 'queue "q": the consumer was closed by us')
    await until_depth(broker, 1)
    assert broker.is_connected


# --- Losing -------------------------------------------------------------------------------------------------


async def lost(inbox: Inbox) -> BrokerLostError:
    async with asyncio.timeout(DEADLINE):
        return await inbox.consumer.wait_lost()


async def test_a_queue_that_is_missing_is_named_and_costs_nobody_else(broker: Broker, plain: bool) -> None:
    inbox = await open_inbox(broker, plain, then=ack)

    with pytest.raises(QueueMissingError, match='queue "nowhere" is not there .NOT_FOUND.*; declare it'):
        await broker.consumer("nowhere", 10, print, plain=plain)

    await send(broker, b"x")
    await inbox.gets(1)
    assert inbox.consumer.is_usable


async def test_a_missing_permission_is_named(services: Services, rabbitmq_url: str, plain: bool) -> None:
    parts = urlsplit(rabbitmq_url)
    with user_without_rights(services) as name:
        rights = {"configure": "^$", "write": "^$", "read": "^$"}
        management(services, "PUT", f"permissions/{parts.path[1:]}/{name}", rights)
        url = urlunsplit(parts._replace(netloc=f"{name}:{name}@{parts.hostname}:{parts.port}"))
        async with Broker(url, name="test") as broker:
            with pytest.raises(AccessRefusedError, match='queue "q": ACCESS_REFUSED .*; give the user this'):
                await broker.consumer(QUEUE, 10, print, plain=plain)


async def test_a_deleted_queue_ends_its_consumer_and_is_named(
    broker: Broker, plain: bool, channel: AbstractChannel
) -> None:
    inbox = await open_inbox(broker, plain)
    other = await open_inbox(broker, plain, queue=DEAD, then=ack)
    await send(broker, b"x")
    (received,) = await inbox.gets(1)

    await channel.queue_delete(QUEUE)

    error = await lost(inbox)
    assert isinstance(error, ConsumerCancelledError)
    assert str(error).startswith('queue "q": the broker has ended the consumer: ')
    assert not inbox.consumer.is_usable
    # The channel lives, and takes what has become pointless.
    assert inbox.consumer.ack(received)
    await inbox.consumer.aclose()
    await send(broker, b"x", queue=DEAD)
    await other.gets(1)
    with pytest.raises(QueueMissingError):
        await broker.consumer(QUEUE, 10, print, plain=plain)


async def test_a_channel_that_the_broker_closes_is_lost_with_its_words_and_alone(
    broker: Broker, plain: bool
) -> None:
    inbox = await open_inbox(broker, plain)
    other = await open_inbox(broker, plain, queue=DEAD, then=ack)
    await send(broker, b"x")
    (received,) = await inbox.gets(1)

    await (await underlay(inbox.consumer)).basic_ack(999, wait=False)

    error = await lost(inbox)
    assert type(error) is BrokerLostError
    assert 'queue "q": the channel to the broker is gone: PRECONDITION_FAILED' in str(error)
    assert not inbox.consumer.is_usable
    assert not inbox.consumer.ack(received)
    await inbox.consumer.stop()
    await inbox.consumer.aclose()
    await until_depth(broker, 1)
    await send(broker, b"x", queue=DEAD)
    await other.gets(1)


async def test_a_connection_that_an_administrator_closes_is_lost_with_his_words(
    services: Services, rabbitmq_url: str, broker: Broker, plain: bool
) -> None:
    inbox = await open_inbox(broker, plain)
    await send(broker, b"x")
    (received,) = await inbox.gets(1)
    name = broker._name
    async with asyncio.timeout(DEADLINE):
        while name not in (names := await asyncio.to_thread(connection_names, services)):
            await asyncio.sleep(0.1)

    await asyncio.to_thread(management, services, "DELETE", f"connections/{quote(names[name], safe='')}")

    error = await lost(inbox)
    assert type(error) is BrokerLostError
    assert "CONNECTION_FORCED" in str(error)
    assert not inbox.consumer.is_usable
    assert not inbox.consumer.ack(received)
    await inbox.consumer.stop()
    await inbox.consumer.aclose()
    with pytest.raises(BrokerLostError, match="the connection was lost"):
        await broker.consumer(QUEUE, 10, print, plain=plain)
    assert [one.redelivered for one in await rest(rabbitmq_url)] == [True]


async def test_waiting_for_the_loss_can_be_given_up(broker: Broker, plain: bool) -> None:
    inbox = await open_inbox(broker, plain)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await inbox.consumer.wait_lost()
    assert inbox.consumer.is_usable


# --- Sharing ------------------------------------------------------------------------------------------------


async def test_consumers_and_a_publisher_share_a_connection(broker: Broker, plain: bool) -> None:
    publisher = await broker.publisher(plain=plain)
    publishing: set[asyncio.Task[Any]] = set()

    def forward(inbox: Inbox, received: Received) -> None:
        onward = Message(DEAD, received.message.body, received.message.message_id, 0)
        nowhere = Message("nowhere", b"", "none", 0)
        task = asyncio.create_task(publisher.publish(DEFAULT_EXCHANGE, [onward, nowhere], DEADLINE))
        publishing.add(task)
        task.add_done_callback(lambda _: ack(inbox, received))

    first = await open_inbox(broker, plain, then=forward, prefetch_count=20)
    second = await open_inbox(broker, plain, then=ack, queue=DEAD)
    await send(broker, *(b"%d" % number for number in range(500)))

    await second.gets(500)

    assert sorted(second.bodies) == sorted(first.bodies)
    assert [(await task)[0] for task in publishing] == [CONFIRMED] * 500
    await until(lambda: first.consumer.unsettled == 0, "the last ack")


async def test_consumers_come_and_go_on_one_connection(broker: Broker, plain: bool) -> None:
    """On the broker and here: opened and closed for ever, numbers and memory must not run out."""
    transport: Any = broker._transport
    await send(broker, *[b"x"] * 100)
    for _ in range(30):
        inbox = await open_inbox(broker, plain, prefetch_count=1)
        await inbox.gets(1)
        await inbox.consumer.aclose()
    async with asyncio.timeout(DEADLINE):
        while transport.channels:
            await asyncio.sleep(0.01)
    assert transport.sinks == {}
    await until_depth(broker, 100)


@pytest.mark.parametrize("connect", [aio_pika.connect, aio_pika.connect_robust])
async def test_on_a_given_connection_the_plain_consumer_is_used(
    broker: Broker, rabbitmq_url: str, connect: Callable[[str], Any]
) -> None:
    await send(broker, *[b"x"] * 100)
    async with await connect(rabbitmq_url) as connection, Broker(connection=connection, name="test") as given:
        inbox = await open_inbox(given, plain=False, prefetch_count=10, then=ack)
        assert isinstance(inbox.consumer, PlainConsumer)
        await inbox.gets(100)
        await inbox.consumer.aclose()


# --- Only where the frames are our own ----------------------------------------------------------------------


async def test_the_fast_consumer_is_the_default(broker: Broker) -> None:
    assert isinstance(await broker.consumer(QUEUE, 1, print), BatchConsumer)


async def test_a_slow_callback_does_not_cost_the_heartbeats(rabbitmq_url: str) -> None:
    async with Broker(rabbitmq_url, name="test", heartbeat_seconds=1) as broker:
        await send(broker, *[b"x"] * 250)
        # In one piece, it would keep the loop from writing for longer than the broker waits.
        inbox = await open_inbox(broker, plain=False, prefetch_count=250, then=lambda _, __: time.sleep(0.02))
        await inbox.gets(250)
        assert [inbox.consumer.ack(received) for received in inbox.received] == [True] * 250
        await inbox.consumer.aclose()
        assert broker.is_connected
        await until_depth(broker, 0)


def header_frame(number: int, flags: int, properties: bytes) -> bytes:
    start = struct.pack(">BHIHHQH", 2, number, 14 + len(properties), 60, 0, 0, flags)
    return start + properties + b"\xce"


async def test_texts_that_are_no_utf8_cost_nobody_the_connection(
    broker: Broker, channel: AbstractChannel
) -> None:
    own: Any = await channel.get_underlay_channel()
    message_id = header_frame(own.number, 1 << 7 | 1 << 12, b"\x02" + b"\x03a\xffz")
    await aiormq_internals.write(
        own, aiormq_frame(own, commands.Basic.Publish(routing_key=QUEUE)) + message_id
    )
    inbox = await open_inbox(broker, plain=False, then=ack)
    (received,) = await inbox.gets(1)
    assert received.message == Message(QUEUE, b"", "a\udcffz")

    publisher = await broker.publisher()
    assert await publisher.publish(DEFAULT_EXCHANGE, [received.message], DEADLINE) == [CONFIRMED]
    assert (await inbox.gets(2))[1].message.message_id == "a\udcffz"


async def send_unreadable(broker: Broker, channel: AbstractChannel) -> None:
    """Put a message into the queue whose headers are nested too deeply."""
    own: Any = await channel.get_underlay_channel()
    nested = b"V"
    for _ in range(5000):
        nested = b"A" + struct.pack(">I", len(nested)) + nested
    table = b"\x04deep" + nested
    frames = aiormq_frame(own, commands.Basic.Publish(routing_key=QUEUE)) + header_frame(
        own.number, 1 << 13, struct.pack(">I", len(table)) + table
    )
    await aiormq_internals.write(own, frames)
    await until_depth(broker, 1)


async def test_a_message_that_cannot_be_read_is_dead_lettered_and_holds_nobody_up(
    broker: Broker, channel: AbstractChannel, caplog: pytest.LogCaptureFixture
) -> None:
    await send_unreadable(broker, channel)
    await send(broker, b"next")

    inbox = await open_inbox(broker, plain=False, then=ack)

    await inbox.gets(1)
    assert inbox.bodies == [b"next"]
    assert 'queue "q": a message is dead-lettered, because its headers are nested too deeply' in caplog.text
    await until_depth(broker, 1, DEAD)


async def test_a_message_that_cannot_be_read_stays_where_this_is_asked_for(
    broker: Broker, channel: AbstractChannel
) -> None:
    await send_unreadable(broker, channel)
    await send(broker, b"next")
    inbox, problems = Inbox(ack), list[DecodingError]()

    inbox.consumer = await broker.consumer(QUEUE, 100, inbox, on_unreadable=problems.append)

    await inbox.gets(1)
    assert inbox.bodies == [b"next"]
    assert list(map(str, problems)) == ["its headers are nested too deeply"]
    await inbox.consumer.aclose()
    await until_depth(broker, 1)
    assert await broker.depth(DEAD) == 0
