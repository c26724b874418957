"""Ordered listeners: one message at a time, in the order of the queue, whatever happens in between."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from outbox import Constant, Listener, NoRetry, listen, wire
from outbox_cli.local import Services
from outbox_core.backoff import Backoff
from outbox_worker import handling
from outbox_worker.handling import Handling
from tests.integration.test_worker_inbox import Door
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


@pytest.fixture
async def broker_door(rabbitmq_url: str) -> AsyncIterator[tuple[Door, str]]:
    """A way to the broker that can be shut, and the URL that leads through it."""
    parts = urlsplit(rabbitmq_url)
    door = Door(parts.hostname or "", parts.port or 5672)
    await door.open()
    credentials = parts.netloc.rpartition("@")[0]
    yield door, urlunsplit(parts._replace(netloc=f"{credentials}@127.0.0.1:{door.own_port}"))
    await door.shut()


async def test_a_worker_that_loses_its_connection_cancels_the_call_before_it_is_overtaken(
    workshop: Workshop, broker_door: tuple[Door, str]
) -> None:
    way, url = broker_door
    effects: list[tuple[str, int]] = []
    has_begun, go = asyncio.Event(), asyncio.Event()

    async def first(body: int) -> None:
        has_begun.set()
        await go.wait()
        effects.append(("first", body))

    async def second(body: int) -> None:
        effects.append(("second", body))

    await workshop.working(Listener("a", first, workshop.queue(), ordered=True), rmq_connection_url=url)
    await workshop.working(Listener("a", second, workshop.queue(), ordered=True))
    for number in (1, 2, 3):
        await workshop.publish("a", number)
    await has_begun.wait()
    await way.shut()
    await workshop.until(lambda: ("second", 3) in effects, "the other worker to handle all")
    go.set()
    await workshop.until_empty(workshop.queue())
    assert effects == [("second", 1), ("second", 2), ("second", 3)]


async def test_a_worker_that_is_stopping_cancels_the_call_whose_connection_is_lost(
    workshop: Workshop, broker_door: tuple[Door, str], caplog: pytest.LogCaptureFixture
) -> None:
    way, url = broker_door
    effects: list[tuple[str, int]] = []
    has_begun, go = asyncio.Event(), asyncio.Event()

    async def first(body: int) -> None:
        has_begun.set()
        await go.wait()
        effects.append(("first", body))

    async def second(body: int) -> None:
        effects.append(("second", body))

    stopped = await workshop.working(
        Listener("a", first, workshop.queue(), ordered=True), rmq_connection_url=url
    )
    await workshop.working(Listener("a", second, workshop.queue(), ordered=True))
    for number in (1, 2, 3):
        await workshop.publish("a", number)
    await has_begun.wait()
    with caplog.at_level(logging.INFO, "outbox.worker"):
        stopped.stopping.set()
        await workshop.until(lambda: "finishing the messages" in caplog.text, "the worker to stop")
    await way.shut()
    await workshop.until(lambda: ("second", 3) in effects, "the other worker to handle all")
    await workshop.until(lambda: "is not consumed for now" in caplog.text, "the loss to be noticed")
    go.set()
    await stopped.stop()
    assert effects == [("second", 1), ("second", 2), ("second", 3)]


async def test_an_exactly_once_effect_does_not_commit_after_its_connection_was_lost(
    workshop: Workshop, broker_door: tuple[Door, str], postgres_url: str
) -> None:
    way, url = broker_door
    has_begun = asyncio.Event()
    application = await asyncpg.connect(postgres_url)
    await application.execute("CREATE TABLE effect (id serial, worker text, body int)")

    async def first(body: int, connection: asyncpg.Connection) -> None:
        has_begun.set()
        with contextlib.suppress(asyncio.CancelledError):  # it goes on, whatever it is told
            await asyncio.Event().wait()
        await connection.execute("INSERT INTO effect (worker, body) VALUES ('first', $1)", body)

    async def second(body: int, connection: asyncpg.Connection) -> None:
        await connection.execute("INSERT INTO effect (worker, body) VALUES ('second', $1)", body)

    queue, database = workshop.queue(), {"db_engine_url": postgres_url, "auto_create_table": True}
    listener = Listener("a", first, queue, exactly_once=True, ordered=True)
    await workshop.working(listener, rmq_connection_url=url, **database)
    await workshop.working(Listener("a", second, queue, exactly_once=True, ordered=True), **database)
    for number in (1, 2, 3):
        await workshop.publish("a", number)
    await has_begun.wait()
    await way.shut()
    await workshop.until_metric(3, "outbox_messages_processed_total", queue, status="success")
    rows = await application.fetch("SELECT worker, body FROM effect ORDER BY id")
    assert [tuple(row) for row in rows] == [("second", 1), ("second", 2), ("second", 3)]
    await application.close()


async def test_a_call_in_a_thread_ends_before_its_worker_consumes_again(
    workshop: Workshop, services: Services
) -> None:
    bodies: list[int] = []
    go = threading.Event()

    @listen("a", queue=workshop.queue(), ordered=True)
    def handler(body: int) -> None:
        bodies.append(body)
        if len(bodies) == 1:
            go.wait(timeout=60)

    running = await workshop.working(handler)
    for number in (1, 2):
        await workshop.publish("a", number)
    await workshop.until(lambda: bodies == [1], "the first call")
    await cut(services, workshop, "consuming")
    await workshop.until(
        lambda: "waiting for a call" in (running.worker.unready_reason() or ""),
        lambda: f"the worker to wait for its thread: {running.worker.unready_reason()}",
    )
    assert bodies == [1]
    go.set()
    await workshop.until(lambda: bodies == [1, 1, 2], "the rest")


class BrokenPolicyError(Exception):
    pass


class BrokenPolicy(NoRetry):
    def next_delay(self, attempt: int, error: BaseException, pick: Any = None) -> None:
        raise BrokenPolicyError("a mistake in the application's policy")


@pytest.mark.parametrize("ordered", [True, False], ids=["ordered", "unordered"])
async def test_a_retry_policy_that_raises_dead_letters_the_message_with_its_error(
    workshop: Workshop, ordered: bool
) -> None:
    calls = Calls()

    @listen("a", queue=workshop.queue(), ordered=ordered, retry_delays=BrokenPolicy())
    async def fails_first(body: int) -> None:
        calls.note(body)
        if body == 1:
            raise ValueError("the listener's own error")

    running = await workshop.working(fails_first)
    for number in (1, 2):
        await workshop.publish("a", number)
    letter = await workshop.dead_letter(fails_first.queue)
    assert letter.headers[wire.ERROR_TYPE] == f"{__name__}.BrokenPolicyError"
    assert letter.headers[wire.ERROR] == "a mistake in the application's policy"
    assert "the listener's own error" in str(letter.headers[wire.TRACEBACK])
    await workshop.until_called(calls, 2)
    assert sorted(calls.bodies) == [1, 2]
    await workshop.until_empty(fails_first.queue)
    await workshop.until_ready(running)


@pytest.mark.parametrize("ordered", [True, False], ids=["ordered", "unordered"])
async def test_an_unexpected_error_makes_the_worker_unready_and_ends_in_a_dead_letter(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, ordered: bool
) -> None:
    calls = Calls()
    reasons: set[str] = set()

    def fail(*_: object) -> None:
        raise RuntimeError("a mistake of the worker's own")

    monkeypatch.setattr(Handling, "_log_failure", fail)
    monkeypatch.setattr(handling, "_AGAIN", Backoff(0.1, 0.1))

    @listen("a", queue=workshop.queue(), ordered=ordered, retry_delays=(0.01,))
    async def fails_first(body: int) -> None:
        calls.note(body)
        reasons.add(running.worker.unready_reason() or "")
        if body == 1:
            raise ValueError("the listener's own error")

    running = await workshop.working(fails_first)
    for number in (1, 2):
        await workshop.publish("a", number)
    letter = await workshop.dead_letter(fails_first.queue)
    assert letter.headers[wire.ERROR] == "a mistake of the worker's own"
    await workshop.until(lambda: 2 in calls.bodies, "the message behind it")
    await workshop.until_ready(running)
    assert any(fails_first.queue in reason and "own" in reason for reason in reasons)
    # In order, what has failed for good is not tried again.
    assert calls.bodies.count(1) == (2 if ordered else 5)


async def test_a_redriven_message_gets_all_of_its_attempts(workshop: Workshop) -> None:
    calls = Calls()

    @listen("a", queue=workshop.queue(), ordered=True, retry_delays=(0.01, 0.01))
    async def fails(body: int, attempt_count: int) -> None:
        calls.note(body, attempt_count)
        raise ValueError("never")

    await workshop.working(fails)
    for _ in range(2):
        await workshop.publish("a", 1, message_id="one")
        letter = await workshop.dead_letter(fails.queue)
        assert letter.headers[wire.ATTEMPTS] == 3
    assert calls.attempts == [1, 2, 3, 1, 2, 3]
