"""Ordered listeners: one message at a time, in the order of the queue, whatever happens in between."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from outbox import Constant, Listener, listen, wire
from outbox_cli.local import Services
from tests.integration.test_worker_resilience import cut
from tests.integration.working import Calls, Workshop, workshop_at


@pytest.fixture
async def workshop(rabbitmq_url: str) -> AsyncIterator[Workshop]:
    async with workshop_at(rabbitmq_url) as workshop:
        yield workshop


def without_repeats(bodies: list[Any]) -> list[Any]:
    return [body for index, body in enumerate(bodies) if index == 0 or bodies[index - 1] != body]


async def test_messages_are_handled_one_at_a_time_in_their_order(workshop: Workshop) -> None:
    calls = Calls()
    running = most = 0

    @listen("a", queue=workshop.queue(), ordered=True)
    async def handler(body: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        calls.note(body)
        running -= 1

    await workshop.working(handler, prefetch_count=50)
    for number in range(100):
        await workshop.publish("a", number)
    await workshop.until_called(calls, 100)
    assert calls.bodies == list(range(100))
    assert most == 1


async def test_a_failing_message_holds_the_queue_until_it_succeeds(workshop: Workshop) -> None:
    calls = Calls()

    @listen("a", queue=workshop.queue(), ordered=True, retry_delays=(0.05, 0.1, 0.05))
    async def handler(body: int, attempt_count: int) -> None:
        calls.note(body, attempt_count)
        if body == 1 and attempt_count < 4:
            raise ValueError("not yet")

    await workshop.working(handler)
    for number in range(4):
        await workshop.publish("a", number)
    await workshop.until_called(calls, 7)
    assert list(zip(calls.bodies, calls.attempts, strict=True)) == [
        (0, 1),
        (1, 1),
        (1, 2),
        (1, 3),
        (1, 4),
        (2, 1),
        (3, 1),
    ]
    waited = [later - earlier for earlier, later in zip(calls.times[1:4], calls.times[2:5], strict=True)]
    assert all(real >= asked for real, asked in zip(waited, (0.05, 0.1, 0.05), strict=True)), waited
    await workshop.until_empty(handler.queue)


async def test_a_message_that_never_succeeds_is_dead_lettered_and_others_follow(
    workshop: Workshop,
) -> None:
    calls = Calls()

    @listen("a", queue=workshop.queue(), ordered=True, retry_delays=(0.05, 0.05))
    async def handler(body: int, attempt_count: int) -> None:
        calls.note(body, attempt_count)
        if body == 1:
            raise ValueError("never")

    await workshop.working(handler)
    for number in range(3):
        await workshop.publish("a", number)
    letter = await workshop.dead_letter(handler.queue)
    assert letter.headers[wire.ATTEMPTS] == 3
    assert letter.headers[wire.ERROR] == "never"
    await workshop.until_called(calls, 5)
    assert calls.bodies == [0, 1, 1, 1, 2]


async def test_order_is_kept_across_lost_connections(workshop: Workshop, services: Services) -> None:
    calls = Calls()

    @listen("a", queue=workshop.queue(), ordered=True, retry_delays=Constant(0.01, retries=3))
    async def handler(body: int, attempt_count: int) -> None:
        calls.note(body, attempt_count)
        await asyncio.sleep(0.005)
        if body % 10 == 5 and attempt_count == 1:
            raise ValueError("once")

    running = await workshop.working(handler, prefetch_count=50)
    for number in range(150):
        await workshop.publish("a", number)
        if number in (50, 100):
            await cut(services, workshop, "consuming")
    await workshop.until(lambda: bool(calls.bodies) and calls.bodies[-1] == 149, "the last message")
    await workshop.until_empty(handler.queue)
    # What was under way is delivered again, at its place.
    assert without_repeats(calls.bodies) == list(range(150))
    await workshop.until_ready(running)


async def test_attempts_are_counted_across_a_lost_connection(workshop: Workshop, services: Services) -> None:
    calls = Calls()

    @listen("a", queue=workshop.queue(), ordered=True, retry_delays=(0.01, 0.01, 1, 1))
    async def handler(body: int, attempt_count: int) -> None:
        calls.note(body, attempt_count)
        raise ValueError("never")

    await workshop.working(handler)
    await workshop.publish("a", 0)
    await workshop.until_called(calls, 3)
    await cut(services, workshop, "consuming")
    letter = await workshop.dead_letter(handler.queue)
    assert calls.attempts == [1, 2, 3, 4, 5]
    assert letter.headers[wire.ATTEMPTS] == 5
    assert calls.times[3] - calls.times[2] >= 1


@pytest.mark.parametrize("every", [1_000, 5], ids=["succeeding", "failing at first"])
async def test_workers_that_come_and_go_take_over_from_each_other_in_order(
    workshop: Workshop, every: int
) -> None:
    calls: list[tuple[int, int]] = []

    def listener(name: int) -> Listener[..., Any]:
        async def handle(body: int) -> None:
            is_first = body not in [each for _, each in calls]
            calls.append((name, body))
            await asyncio.sleep(0.002)
            if is_first and body % every == every - 1:
                raise ValueError("at first")

        return Listener("a", handle, workshop.queue(), ordered=True, retry_delays=(0.05, 0.05))

    # Of all that are connected one works, and the next one takes over when it leaves.
    workers = [await workshop.working(listener(name), prefetch_count=20) for name in range(6)]
    for number in range(180):
        await workshop.publish("a", number)
        if number % 30 == 29 and len(workers) > 1:
            await workers.pop(0).stop()
    await workshop.until(lambda: bool(calls) and calls[-1][1] == 179, "the last message")
    await workshop.until_empty(workshop.queue())
    assert without_repeats([body for _, body in calls]) == list(range(180))
    names = [name for name, _ in calls]
    assert names == sorted(names)
    assert len(set(names)) > 1


async def test_a_message_that_waits_for_its_retry_is_left_to_the_next_worker(workshop: Workshop) -> None:
    calls = Calls()

    @listen("a", queue=workshop.queue(), ordered=True, retry_delays=(300,))
    async def handler(body: int) -> None:
        calls.note(body)
        if len(calls) == 1:
            raise ValueError("later")

    running = await workshop.working(handler)
    await workshop.publish("a", 0)
    await workshop.publish("a", 1)
    await workshop.until_metric(1, "outbox_messages_in_flight", handler.queue)
    await workshop.until_called(calls, 1)
    await running.stop()
    await workshop.working(handler)
    await workshop.until_called(calls, 3)
    assert calls.bodies == [0, 0, 1]
