"""Messages that wait for longer than the broker lets them be unanswered: its consumer_timeout, shortened."""

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import aio_pika
import asyncpg
import pytest

from outbox import Listener, Retry, listen, wire
from outbox_cli.local import Services
from outbox_cli.local.rabbitmq import RabbitMQServer
from outbox_core.broker import Broker
from outbox_core.publisher import Message
from tests.chaos.world import World
from tests.integration.administrator import broker_version, rabbitmqctl, suspended_queue
from tests.integration.test_worker_inbox import Door
from tests.integration.working import Calls, Workshop, workshop_at

TIMEOUT_SECONDS = 4.0
SHORT = {"consumer_timeout": TIMEOUT_SECONDS, "publish_timeout": 0.05}
RECEIVED = "outbox_messages_received_total"
TIMED_OUT = "acknowledgement on channel"


@pytest.fixture(scope="module")
def short_timeout(private: Services) -> None:
    """Have the broker close channels on which a delivery is unanswered for a few seconds."""
    broker = private.rabbitmq
    if not isinstance(broker, RabbitMQServer):
        pytest.skip("needs RabbitMQ from the programs on this machine")
    milliseconds = round(TIMEOUT_SECONDS * 1000)
    for name, value in (("consumer_timeout", milliseconds), ("channel_tick_interval", 100)):
        rabbitmqctl(broker, "eval", f"application:set_env(rabbit, {name}, {value}).")


@pytest.fixture
async def workshop(short_timeout: None, empty_private_world: World) -> AsyncIterator[Workshop]:
    async with workshop_at(empty_private_world.rabbitmq_url) as workshop:
        yield workshop


@pytest.fixture
async def door(empty_private_world: World) -> AsyncIterator[tuple[Door, dict[str, Any]]]:
    """A way to the database that can be shut, and the options of a worker that goes there."""
    parts = urlsplit(empty_private_world.postgres_url)
    door = Door(parts.hostname or "", parts.port or 5432)
    await door.open()
    credentials = parts.netloc.rpartition("@")[0]
    url = urlunsplit(parts._replace(netloc=f"{credentials}@127.0.0.1:{door.own_port}"))
    yield door, {"db_engine_url": url, "auto_create_table": True}
    await door.shut()


async def limited(workshop: Workshop, listener: Listener[..., Any], deliveries: int) -> None:
    """Make an ordered listener's queue, and what belongs to it, with another delivery limit."""
    await (await workshop.working(listener, **SHORT)).stop()
    await workshop.channel.queue_delete(listener.queue)
    arguments: dict[str, Any] = {
        "x-queue-type": "quorum",
        "x-single-active-consumer": True,
        "x-delivery-limit": deliveries,
        "x-dead-letter-exchange": f"{workshop.exchange_name}.dlx",
        "x-dead-letter-routing-key": listener.queue,
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }
    queue = await workshop.channel.declare_queue(listener.queue, durable=True, arguments=arguments)
    await queue.bind(workshop.exchange_name, listener.binding_key)


@pytest.mark.parametrize("has_id", [True, False], ids=["with an id", "without an id"])
async def test_a_retry_waits_in_its_place_for_longer_than_the_consumer_timeout(
    workshop: Workshop, caplog: pytest.LogCaptureFixture, has_id: bool
) -> None:
    calls = Calls()

    @listen("a", queue=workshop.queue(), ordered=True, retry_delays=(9,))
    async def fails_once(body: int, attempt_count: int) -> None:
        calls.note(body, attempt_count)
        if body == 1 and attempt_count == 1:
            raise ValueError("not yet")

    # Another worker waits for its turn, and does not get the message meanwhile.
    for _ in range(2):
        await workshop.working(fails_once, **SHORT)
    # Not by aio-pika, which would give an id to a message that has none.
    async with Broker(workshop.rabbitmq_url, name="test") as broker:
        publisher = await broker.publisher()
        messages = [Message("a", b"%d" % number, f"id-{number}" if has_id else None) for number in (1, 2)]
        await publisher.publish(workshop.exchange_name, messages, 10)
    await workshop.until_called(calls, 3)
    assert list(zip(calls.bodies, calls.attempts, strict=True)) == [(1, 1), (1, 2), (2, 1)]
    assert calls.times[1] - calls.times[0] >= 9
    await workshop.until_empty(fails_once.queue)
    assert await workshop.depth(f"{fails_once.queue}.dlq") == 0
    assert TIMED_OUT not in caplog.text


async def test_a_shorter_consumer_timeout_than_was_set_is_learnt_from_the_broker(
    workshop: Workshop, private: Services, caplog: pytest.LogCaptureFixture
) -> None:
    calls = Calls()

    @listen("a", queue=workshop.queue(), ordered=True, retry_delays=(12,))
    async def fails_once(body: int, attempt_count: int) -> None:
        calls.note(body, attempt_count)
        if body == 1 and attempt_count == 1:
            raise ValueError("not yet")

    await workshop.working(fails_once)
    for number in (1, 2):
        await workshop.publish("a", number)
    await workshop.until_called(calls, 3)
    assert list(zip(calls.bodies, calls.attempts, strict=True)) == [(1, 1), (1, 2), (2, 1)]
    if broker_version(private) >= (4, 3):
        # It cancels the consumer, without a reason.
        assert "or consumer_timeout was over" in caplog.text
        return
    lost = [record for record in caplog.records if TIMED_OUT in record.getMessage()]
    assert len(lost) == 1
    assert f"be unanswered for {TIMEOUT_SECONDS:g} s; set consumer_timeout" in caplog.text


async def test_a_message_that_cannot_be_held_any_longer_is_dead_lettered_with_the_reason(
    workshop: Workshop,
) -> None:
    calls = Calls()

    @listen("a", queue=workshop.queue(), ordered=True, retry_delays=(0.1, 6))
    async def waits(body: int, attempt_count: int) -> None:
        calls.note(body, attempt_count)
        if body == 1:
            raise Retry(after=6)

    limit = 4
    await limited(workshop, waits, limit)
    await workshop.working(waits, **SHORT, delivery_limit=limit, provisioned=True)
    for number in (1, 2):
        await workshop.publish("a", number)
    letter = await workshop.dead_letter(waits.queue)
    assert letter.headers[wire.ERROR_TYPE] == "outbox_worker.errors.HeldTooLongError"
    assert "it waits for attempt 3" in str(letter.headers[wire.ERROR])
    assert "Retry" in str(letter.headers[wire.TRACEBACK])
    assert letter.headers[wire.ATTEMPTS] == 2
    assert "x-death" not in letter.headers
    await workshop.until_called(calls, 3)
    assert list(zip(calls.bodies, calls.attempts, strict=True)) == [(1, 1), (1, 2), (2, 1)]


@pytest.mark.parametrize("ordered", [True, False], ids=["ordered", "unordered"])
@pytest.mark.parametrize("way", ["exactly_once", "deduplicate"])
async def test_messages_wait_in_their_queue_while_the_database_is_away_for_long(
    workshop: Workshop, door: tuple[Door, dict[str, Any]], ordered: bool, way: str
) -> None:
    database, options = door
    calls, returns = Calls(), dict[int, int]()

    async def handle(body: int, message: aio_pika.IncomingMessage, attempt_count: int) -> None:
        calls.note(body, attempt_count)
        counts = (message.headers.get(name, 0) for name in ("x-acquired-count", "x-delivery-count"))
        returns[body] = max(int(str(count)) for count in counts)

    is_once = way == "exactly_once"
    listener = Listener(
        "a", handle, workshop.queue(), (), ordered=ordered, exactly_once=is_once, deduplicate=not is_once
    )
    running = await workshop.working(listener, **SHORT, **options)
    await database.shut()
    for number in range(3):
        await workshop.publish("a", number)
    # As long as nobody consumes the queue, no message of it can be unanswered.
    await workshop.until_unconsumed(listener.queue)
    await workshop.until_depth(listener.queue, 3)
    assert "the database is away" in (running.worker.unready_reason() or "")
    assert calls.bodies == []
    await database.open()
    await workshop.until_ready(running)
    await workshop.until_called(calls, 3)
    await workshop.until_empty(listener.queue)
    assert sorted(calls.bodies) == [0, 1, 2]
    assert not ordered or calls.bodies == [0, 1, 2]
    assert set(calls.attempts) == {1}
    assert returns == ({0: 1, 1: 0, 2: 0} if ordered else {0: 1, 1: 1, 2: 1})
    assert await workshop.depth(f"{listener.queue}.dlq") == 0


async def test_a_message_that_somebody_else_handles_is_returned_until_that_has_ended(
    workshop: Workshop, door: tuple[Door, dict[str, Any]], empty_private_world: World
) -> None:
    calls = Calls()

    @listen("a", queue=workshop.queue(), exactly_once=True)
    async def handler(body: int, attempt_count: int, connection: asyncpg.Connection) -> None:
        calls.note(body, attempt_count)

    await workshop.working(handler, **SHORT, **door[1])
    async with empty_private_world.database() as somebody, somebody.transaction():
        await somebody.execute("INSERT INTO outbox_inbox VALUES ($1, $2)", handler.queue, "one")
        await workshop.publish("a", 1, message_id="one")
        await workshop.until_metric(3, RECEIVED, handler.queue)
        # Others are handled meanwhile.
        await workshop.publish("a", 2)
        await workshop.until_called(calls, 1)
        await somebody.execute("DELETE FROM outbox_inbox")
    await workshop.until_called(calls, 2)
    await workshop.until_empty(handler.queue)
    assert calls.bodies == [2, 1]
    assert calls.attempts == [1, 1]


async def test_an_ordered_message_that_failed_for_good_is_not_tried_again_while_its_dead_letter_waits(
    workshop: Workshop, private: Services
) -> None:
    calls = Calls()

    @listen("a", queue=workshop.queue(), ordered=True, retry_delays=())
    async def fails_first(body: int) -> None:
        calls.note(body)
        if body == 1:
            raise ValueError("never")

    await workshop.working(fails_first, **SHORT)
    async with suspended_queue(private, workshop.rabbitmq_url, f"{fails_first.queue}.dlq"):
        for number in (1, 2):
            await workshop.publish("a", number)
        await workshop.until_metric(3, RECEIVED, fails_first.queue)
        assert calls.bodies == [1]
    letter = await workshop.dead_letter(fails_first.queue)
    assert letter.headers[wire.ERROR] == "never"
    await workshop.until_called(calls, 2)
    assert calls.bodies == [1, 2]


async def test_a_message_whose_tier_stays_stuck_is_dead_lettered_with_the_reason(
    workshop: Workshop, private: Services
) -> None:
    calls = Calls()

    @listen("a", queue=workshop.queue(), retry_delays=(0.05,))
    async def fails(body: int, attempt_count: int) -> None:
        calls.note(body, attempt_count)
        raise ValueError("never")

    # Of two returns one is for a worker that dies.
    await workshop.working(fails, **SHORT, delivery_limit=2)
    async with suspended_queue(private, workshop.rabbitmq_url, f"{workshop.exchange_name}.delay_50ms"):
        await workshop.publish("a", 1)
        letter = await workshop.dead_letter(fails.queue)
        assert letter.headers[wire.ERROR_TYPE] == "outbox_worker.errors.HeldTooLongError"
        assert "does not confirm its retry" in str(letter.headers[wire.ERROR])
        assert calls.attempts == [1, 1]
