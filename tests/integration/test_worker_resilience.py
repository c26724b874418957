"""What a worker survives: lost connections and channels, deleted queues, tiers that take no messages."""

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import quote, urlsplit

import aio_pika
import pytest

from outbox import Listener, listen, wire
from outbox_cli.local import Services, start
from outbox_core.backoff import Backoff
from outbox_core.batch_consumer import BatchConsumer
from tests.integration.administrator import management, suspended_queue
from tests.integration.working import Calls, Workshop, workshop_at

RECEIVED = "outbox_messages_received_total"


@pytest.fixture
async def workshop(rabbitmq_url: str) -> AsyncIterator[Workshop]:
    async with workshop_at(rabbitmq_url) as workshop:
        yield workshop


def connections(services: Services, workshop: Workshop, kind: str) -> Iterator[str]:
    """What the broker calls the worker's connections of this test."""
    vhost = urlsplit(workshop.rabbitmq_url).path.removeprefix("/")
    for one in management(services, "GET", "connections"):
        name = one.get("client_properties", {}).get("connection_name", "")
        if one.get("vhost") == vhost and name.startswith(f"outbox-worker-{kind}@"):
            yield one["name"]


async def cut(services: Services, workshop: Workshop, kind: str) -> None:
    """Close the worker's connection, once the management plugin knows of it."""
    found: list[str] = []

    async def holds() -> bool:
        found[:] = await asyncio.to_thread(lambda: list(connections(services, workshop, kind)))
        return bool(found)

    await workshop.until(holds, f"the worker's {kind} connection")
    for name in found:
        await asyncio.to_thread(management, services, "DELETE", f"connections/{quote(name, safe='')}")


async def test_a_lost_connection_comes_back_and_what_was_not_acked_is_delivered_again(
    workshop: Workshop, services: Services, caplog: pytest.LogCaptureFixture
) -> None:
    calls = Calls()
    go = asyncio.Event()

    @listen("a", queue=workshop.queue())
    async def handler(body: Any) -> None:
        calls.note(body)
        await go.wait()

    running = await workshop.working(handler)
    message_id = await workshop.publish("a", 1)
    await workshop.until_called(calls, 1)
    await cut(services, workshop, "consuming")
    # The listener runs on, and the message comes again beside it.
    await workshop.until_called(calls, 2)
    go.set()
    await workshop.until_empty(handler.queue)
    assert f"message {message_id} of queue {handler.queue} was handled but could not be acked" in caplog.text
    await workshop.publish("a", 2)
    await workshop.until_called(calls, 3)
    await workshop.until_ready(running)
    assert calls.bodies == [1, 1, 2]


async def test_a_failure_across_a_lost_connection_is_not_retried_twice(
    workshop: Workshop, services: Services
) -> None:
    calls = Calls()
    go = asyncio.Event()

    @listen("a", queue=workshop.queue(), retry_delays=(300,))
    async def fails_first(body: Any) -> None:
        calls.note(body)
        if len(calls) == 1:
            await go.wait()
            raise ValueError("its message is delivered again anyway")

    await workshop.working(fails_first)
    await workshop.publish("a", 1)
    await workshop.until_called(calls, 1)
    await cut(services, workshop, "consuming")
    await workshop.until_called(calls, 2)
    go.set()
    await workshop.until_empty(fails_first.queue)
    assert await workshop.depth(f"{workshop.exchange_name}.delay_300s") == 0


async def test_the_connection_for_retries_comes_back(workshop: Workshop, services: Services) -> None:
    calls = Calls()

    @listen("a", queue=workshop.queue(), retry_delays=(0.05,))
    async def fails_once(body: Any, attempt_count: int) -> None:
        calls.note(body, attempt_count)
        if attempt_count == 1:
            raise ValueError("again")

    await workshop.working(fails_once)
    await workshop.publish("a", 1)
    await workshop.until_called(calls, 2)
    await cut(services, workshop, "publishing")
    await workshop.publish("a", 2)
    await workshop.until_called(calls, 4)
    await workshop.until_empty(fails_once.queue)
    assert calls.attempts == [1, 2, 1, 2]


async def test_a_channel_that_the_broker_closes_is_replaced(workshop: Workshop) -> None:
    calls = Calls()

    @listen("a", queue=workshop.queue())
    async def handler(body: Any) -> None:
        calls.note(body)

    running = await workshop.working(handler)
    # Not `isinstance`, which asks each object, and some lazy ones answer with an error.
    found = [each for each in gc.get_objects() if type(each) is BatchConsumer]
    [consumer] = [each for each in found if each._queue == handler.queue]
    # An unknown delivery tag, over which the broker closes a channel.
    await consumer._channel.basic_ack(4711)
    await workshop.until(lambda: not consumer.is_usable, "the channel to be closed")
    await workshop.publish("a", 1)
    await workshop.until_called(calls, 1)
    await workshop.until_ready(running)
    await workshop.until_empty(handler.queue)


async def test_a_queue_deleted_by_hand_comes_back_with_its_bindings(workshop: Workshop) -> None:
    calls = Calls()

    async def handle(body: Any) -> None:
        calls.note(body)

    queue = workshop.queue()
    running = await workshop.working(Listener("a", handle, queue), Listener("b.*", handle, queue))
    for number in range(3):
        await workshop.channel.queue_delete(queue)
        await workshop.until(lambda: running.worker.unready_reason() is not None, "the worker to notice")
        await workshop.until_ready(running)
        await workshop.publish("a", number)
        await workshop.publish("b.c", number)
        await workshop.until_called(calls, 2 * (number + 1))
    assert sorted(calls.bodies) == [0, 0, 1, 1, 2, 2]


async def test_a_deleted_queue_that_somebody_else_provisions_is_waited_for(workshop: Workshop) -> None:
    calls = Calls()

    @listen("a", queue=workshop.queue())
    async def handler(body: Any) -> None:
        calls.note(body)

    await (await workshop.working(handler)).stop()
    running = await workshop.working(handler, provisioned=True)
    await workshop.channel.queue_delete(handler.queue)
    await workshop.until(
        lambda: f'queue "{handler.queue}" is not there' in (running.worker.unready_reason() or ""),
        lambda: f"the queue to be missed: {running.worker.unready_reason()}",
    )
    # Somebody else, in the person of a worker that declares.
    await (await workshop.working(handler)).stop()
    await workshop.until_ready(running)
    await workshop.publish("a", 1)
    await workshop.until_called(calls, 1)


async def test_a_retry_that_the_tier_refuses_is_held_and_readiness_says_so(workshop: Workshop) -> None:
    calls = Calls()

    @listen("a", queue=workshop.queue(), retry_delays=(0.05,))
    async def fails_once(body: Any, attempt_count: int) -> None:
        calls.note(body, attempt_count)
        if attempt_count == 1:
            raise ValueError("again")

    await (await workshop.working(fails_once)).stop()
    tier = f"{workshop.exchange_name}.delay_50ms"
    await workshop.channel.queue_delete(tier)
    full = await workshop.channel.declare_queue(
        tier, durable=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"}
    )
    await full.bind(tier)
    await workshop.channel.default_exchange.publish(aio_pika.Message(b"filling"), tier)
    running = await workshop.working(fails_once, provisioned=True)
    await workshop.publish("a", 1)
    await workshop.until(
        lambda: "takes no messages" in (running.worker.unready_reason() or ""),
        lambda: f"the worker to say so: {running.worker.unready_reason()}",
    )
    assert calls.attempts == [1]
    await workshop.channel.queue_delete(tier)
    await (await workshop.working(fails_once, prefetch_count=1)).stop()
    await workshop.until_called(calls, 2)
    await workshop.until_ready(running)
    await workshop.until_empty(fails_once.queue)
    assert calls.attempts == [1, 2]


@pytest.fixture(scope="module")
def private() -> Iterator[Services]:
    """A broker whose queues the tests of this module may suspend."""
    with start(environment={}) as services:
        yield services


@pytest.fixture
async def private_workshop(private: Services) -> AsyncIterator[Workshop]:
    async with workshop_at(private.rabbitmq.url) as workshop:
        yield workshop


@pytest.mark.parametrize("kind", ["retry", "dead letter"])
async def test_an_unconfirmed_retry_or_dead_letter_is_awaited_and_not_sent_again(
    private_workshop: Workshop, private: Services, kind: str
) -> None:
    workshop = private_workshop
    calls, others = Calls(), Calls()
    is_retry = kind == "retry"

    @listen("a", queue=workshop.queue(), retry_delays=(0.05,) if is_retry else ())
    async def fails_once(body: int, attempt_count: int) -> None:
        calls.note(body, attempt_count)
        if body == 1 and attempt_count == 1:
            raise ValueError("again")

    @listen("b", queue=workshop.queue("other"), retry_delays=(0.1,))
    async def other(body: int, attempt_count: int) -> None:
        others.note(body, attempt_count)
        if attempt_count == 1:
            raise ValueError("again")

    running = await workshop.working(fails_once, other, publish_timeout=0.2)
    target = f"{workshop.exchange_name}.delay_50ms" if is_retry else f"{fails_once.queue}.dlq"
    async with suspended_queue(private, workshop.rabbitmq_url, target):
        await workshop.publish("a", 1)
        await workshop.until(
            lambda: "has not confirmed" in (running.worker.unready_reason() or ""),
            lambda: f"the worker to say so: {running.worker.unready_reason()}",
        )
        # Neither other messages of the listener nor other listeners wait for it.
        for number in range(2, 30):
            await workshop.publish("a", number)
            await workshop.publish("b", number)
        await workshop.until_called(calls, 29)
        await workshop.until_called(others, 56)
        assert calls.bodies.count(1) == 1
    await workshop.until_ready(running)
    if is_retry:
        await workshop.until_called(calls, 30)
    await workshop.until_empty(fails_once.queue)
    # Copies would have been in the tier or the dead-letter queue together with it.
    await workshop.publish("b", 0)
    await workshop.until_called(others, 58)
    assert sorted(calls.bodies) == [*([1] if is_retry else []), *range(1, 30)]
    assert await workshop.depth(f"{fails_once.queue}.dlq") == (0 if is_retry else 1)


@pytest.mark.parametrize("provisioned", [False, True], ids=["declaring", "provisioned"])
async def test_a_message_that_cannot_be_settled_backs_off_and_is_dead_lettered_with_the_reason(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, provisioned: bool
) -> None:
    calls = Calls()

    @listen("a", queue=workshop.queue(), retry_delays=(0.05,))
    async def fails(body: int, attempt_count: int) -> None:
        calls.note(body, attempt_count)
        if body == 1:
            raise ValueError("the listener's")

    def broken(*_: object) -> None:
        raise LookupError("cannot be settled")

    if provisioned:
        await (await workshop.working(fails)).stop()
    # A fault of the worker's own.
    monkeypatch.setattr("outbox_worker.settling.retry_message", broken)
    monkeypatch.setattr("outbox_worker.handling._AGAIN", Backoff(0.2, 1, jitter=0))
    running = await workshop.working(fails, provisioned=provisioned)
    await workshop.publish("a", 1)
    await workshop.until(
        lambda: "cannot be handled: LookupError" in (running.worker.unready_reason() or ""),
        lambda: f"the worker to say so: {running.worker.unready_reason()}",
    )
    # Others are handled meanwhile.
    await workshop.publish("a", 2)
    letter = await workshop.dead_letter(fails.queue)
    assert letter.headers[wire.ERROR] == "cannot be settled"
    assert letter.headers[wire.ERROR_TYPE] == "builtins.LookupError"
    assert "x-death" not in letter.headers
    await workshop.until_ready(running)
    await workshop.until_empty(fails.queue)
    times = [when for when, body in zip(calls.times, calls.bodies, strict=True) if body == 1]
    assert len(times) == 5
    assert times[-1] - times[0] >= 0.2 + 0.4 + 0.8 + 1
    # It was held, and not returned: the broker delivered it once.
    assert workshop.metric(RECEIVED, fails.queue) == 2
    assert calls.bodies.count(2) == 1


async def test_a_message_that_kills_its_consumers_ends_in_the_dead_letter_queue(
    workshop: Workshop,
) -> None:
    """The delivery limit, reached by consumers that end without an answer."""
    calls = Calls()

    @listen("a", queue=workshop.queue())
    async def handler(body: Any) -> None:
        calls.note(body)

    await (await workshop.working(handler)).stop()
    await workshop.publish("a", 1)
    deliveries = 0
    while await workshop.depth(f"{handler.queue}.dlq") == 0:
        async with await aio_pika.connect(workshop.rabbitmq_url) as connection:
            queue = await (await connection.channel()).get_queue(handler.queue, ensure=False)
            deliveries += await queue.get(fail=False) is not None
    letter = await workshop.dead_letter(handler.queue)
    assert letter.headers["x-first-death-reason"] == "delivery_limit"
    assert wire.ERROR not in letter.headers
    assert deliveries == 21
    assert len(calls) == 0
