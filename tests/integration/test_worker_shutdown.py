"""How a worker leaves: it takes no more, finishes what runs, and gives the rest to others."""

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from outbox import Listener, listen
from tests.integration.working import Calls, Workshop, workshop_at


@pytest.fixture
async def workshop(rabbitmq_url: str) -> AsyncIterator[Workshop]:
    async with workshop_at(rabbitmq_url) as workshop:
        yield workshop


async def test_the_sequence_of_the_original(workshop: Workshop) -> None:
    """Event 1 is finished and acked; 2 and 3, which come meanwhile, are handled by another worker."""
    began, end = asyncio.Event(), asyncio.Event()
    calls, other_calls = Calls(), Calls()

    async def handle(event: int) -> None:
        began.set()
        await end.wait()
        calls.note(event)

    async def handle_elsewhere(event: int) -> None:
        other_calls.note(event)

    running = await workshop.working(Listener("event", handle, workshop.queue()))
    await workshop.publish("event", 1)
    await began.wait()
    running.stopping.set()
    await workshop.publish("event", 2)
    await workshop.publish("event", 3)
    await workshop.until_depth(workshop.queue(), 2)
    assert not running.task.done()
    end.set()
    await running.stop()
    assert calls.bodies == [1]
    await workshop.working(Listener("event", handle_elsewhere, workshop.queue()))
    await workshop.until_called(other_calls, 2)
    await workshop.until_empty(workshop.queue())
    assert sorted(other_calls.bodies) == [2, 3]


async def test_what_succeeds_after_the_signal_is_acked_and_what_fails_is_retried(workshop: Workshop) -> None:
    began: list[int] = []
    end = asyncio.Event()

    @listen("a", queue=workshop.queue(), retry_delays=(300,))
    async def handler(body: int) -> None:
        began.append(body)
        await end.wait()
        if body % 2:
            raise ValueError("odd")

    running = await workshop.working(handler)
    for number in range(6):
        await workshop.publish("a", number)
    await workshop.until(lambda: len(began) == 6, "all to begin")
    running.stopping.set()
    end.set()
    await running.stop()
    assert await workshop.depth(handler.queue) == 0
    assert await workshop.depth(f"{workshop.exchange_name}.delay_300s") == 3


async def test_a_listener_that_takes_too_long_is_cancelled_and_its_message_given_back(
    workshop: Workshop, caplog: pytest.LogCaptureFixture
) -> None:
    began = asyncio.Event()
    cancelled: list[int] = []

    @listen("a", queue=workshop.queue())
    async def slow(body: int) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(body)
            raise

    running = await workshop.working(slow, shutdown_timeout=0.1)
    await workshop.publish("a", 1)
    await began.wait()
    await running.stop()
    assert cancelled == [1]
    await workshop.until_depth(slow.queue, 1)
    assert "1 listeners of queue" in caplog.text


async def test_a_thread_that_takes_too_long_is_left_behind_and_its_message_given_back(
    workshop: Workshop,
) -> None:
    began, end = threading.Event(), threading.Event()

    @listen("a", queue=workshop.queue())
    def slow(body: int) -> None:
        began.set()
        end.wait(timeout=60)

    running = await workshop.working(slow, shutdown_timeout=0.1)
    await workshop.publish("a", 1)
    await workshop.until(began.is_set, "the thread to begin")
    try:
        await running.stop()
        await workshop.until_depth(slow.queue, 1)
    finally:
        end.set()


async def test_a_worker_that_cannot_start_yet_can_be_stopped(workshop: Workshop) -> None:
    worker = workshop.worker(rmq_connection_url="amqp://guest:guest@127.0.0.1:1/")
    running = workshop.start(worker)
    await workshop.until(lambda: "waiting: broker" in (worker.unready_reason() or ""), "the reason")
    await running.stop()


async def test_many_workers_come_and_go_and_every_message_is_handled(workshop: Workshop) -> None:
    calls = Calls()

    @listen("a", queue=workshop.queue())
    async def handler(body: Any) -> None:
        await asyncio.sleep(0.001)
        calls.note(body)

    running = await workshop.working(handler, prefetch_count=50)
    for number in range(300):
        await workshop.publish("a", number)
        if number % 60 == 59:
            following = await workshop.working(handler, prefetch_count=50)
            await running.stop()
            running = following
    await workshop.until_empty(handler.queue)
    assert sorted(calls.bodies) == list(range(300))


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_thirty_rollouts_dead_letter_no_message_that_never_failed(
    workshop: Workshop, kind: str
) -> None:
    """Before RabbitMQ 4.3 each return counts towards the delivery limit of 20, whatever the reason."""
    rolls, messages, end = 30, 5, threading.Event()
    began: list[tuple[int, int]] = []

    @listen("a", queue=workshop.queue(), retry_delays=(0.1, 300))
    async def slow_async(body: int, attempt_count: int) -> None:
        began.append((body, attempt_count))
        while not end.is_set():
            await asyncio.sleep(0.01)

    @listen("a", queue=workshop.queue(), retry_delays=(0.1, 300))
    def slow_sync(body: int, attempt_count: int) -> None:
        began.append((body, attempt_count))
        end.wait(timeout=60)

    slow = slow_async if kind == "async" else slow_sync
    running = await workshop.working(slow, shutdown_timeout=0.05)
    for number in range(messages):
        await workshop.publish("a", number)
    try:
        for roll in range(1, rolls + 1):
            await workshop.until(lambda: len(began) >= messages * roll, f"calls of worker {roll}")  # noqa: B023
            await running.stop()
            running = await workshop.working(slow, shutdown_timeout=0.05)
        await workshop.until(lambda: len(began) >= messages * (rolls + 1), "calls of the last worker")
    finally:
        end.set()
    await workshop.until_empty(slow.queue)
    await running.stop()
    assert await workshop.depth(f"{slow.queue}.dlq") == 0
    assert {attempt for _, attempt in began} == {1}
    assert {body for body, _ in began[-messages:]} == set(range(messages))
