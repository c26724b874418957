"""How listeners are called: threads, context, cancellations, middleware, and what ends a call too early."""

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import aio_pika
import pytest

from outbox import Listener, get_tracking_ids, listen, wire
from outbox.arguments import Delivery
from outbox_cli.local import Services
from tests.integration.test_worker_resilience import cut
from tests.integration.working import Calls, Workshop, workshop_at


@pytest.fixture
async def workshop(rabbitmq_url: str) -> AsyncIterator[Workshop]:
    async with workshop_at(rabbitmq_url) as workshop:
        yield workshop


async def test_as_many_threads_as_are_prefetched_run_at_the_same_time(workshop: Workshop) -> None:
    together = threading.Barrier(4)
    met: list[int] = []

    @listen("a", queue=workshop.queue())
    def meets(number: int) -> None:
        together.wait(timeout=60)
        met.append(number)

    await workshop.working(meets, prefetch_count=4)
    for number in range(8):
        await workshop.publish("a", number)
    await workshop.until(lambda: len(met) == 8, "all to meet")
    await workshop.until_empty(meets.queue)


async def test_as_many_tasks_as_are_prefetched_and_no_more(workshop: Workshop) -> None:
    running: set[int] = set()
    most = 0
    go = asyncio.Event()

    @listen("a", queue=workshop.queue())
    async def waits(number: int) -> None:
        nonlocal most
        running.add(number)
        most = max(most, len(running))
        await go.wait()
        running.discard(number)

    await workshop.working(waits, prefetch_count=5)
    for number in range(20):
        await workshop.publish("a", number)
    await workshop.until(lambda: len(running) == 5, "five to run")
    assert workshop.metric("outbox_messages_in_flight", waits.queue) == 5
    go.set()
    await workshop.until_empty(waits.queue)
    assert most == 5


async def test_tracking_ids_and_context_are_there_in_a_thread(workshop: Workshop) -> None:
    of_middleware: ContextVar[str] = ContextVar("of_middleware")
    seen: list[tuple[list[str], str]] = []

    async def around(call: Callable[[], Awaitable[Any]], message: Delivery) -> Any:
        of_middleware.set(message.routing_key)
        return await call()

    @listen("a", queue=workshop.queue())
    def plain(body: Any) -> None:
        seen.append((get_tracking_ids(), of_middleware.get()))

    await workshop.working(plain, middleware=[around])
    await workshop.publish("a", 1, headers={wire.TRACKING_IDS: '["one"]'})
    await workshop.until(lambda: len(seen) == 1, "the call")
    assert seen == [(["one"], "a")]


async def test_a_plain_function_that_returns_a_coroutine_fails_instead_of_doing_nothing(
    workshop: Workshop,
) -> None:
    async def work() -> None: ...

    listener = Listener("a", lambda _: work(), workshop.queue(), ())
    await workshop.working(listener)
    await workshop.publish("a", 1)
    letter = await workshop.dead_letter(listener.queue)
    assert letter.headers[wire.ERROR_TYPE] == "outbox_worker.errors.NotAwaitedError"
    assert "write `async def`" in str(letter.headers[wire.ERROR])


async def test_a_listener_that_acks_by_itself_fails_and_harms_nobody(workshop: Workshop) -> None:
    calls = Calls()

    @listen("a", queue=workshop.queue(), retry_delays=())
    async def acks(body: Any, message: aio_pika.IncomingMessage) -> None:
        calls.note(body)
        if body == 1:
            await message.ack()

    await workshop.working(acks)
    await workshop.publish("a", 1)
    letter = await workshop.dead_letter(acks.queue)
    assert "ack" in str(letter.headers[wire.ERROR])
    await workshop.publish("a", 2)
    await workshop.until_called(calls, 2)
    await workshop.until_empty(acks.queue)


async def cancels_itself(body: Any) -> None:
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


async def exits(body: Any) -> None:
    sys.exit(3)


def exits_in_a_thread(body: Any) -> None:
    sys.exit(3)


def stops_iterating(body: Any) -> None:
    next(iter(()))


@pytest.mark.parametrize(
    ("callback", "kind"),
    [
        (cancels_itself, "outbox_worker.errors.HandlerCancelledError"),
        (exits, "outbox_worker.errors.HandlerExitError"),
        (exits_in_a_thread, "outbox_worker.errors.HandlerExitError"),
        (stops_iterating, "builtins.RuntimeError"),
    ],
)
async def test_what_would_end_the_worker_or_the_task_is_a_failure_of_the_message(
    workshop: Workshop, callback: Callable[[Any], Any], kind: str
) -> None:
    calls = Calls()

    @listen("b", queue=workshop.queue("other"))
    async def other(body: Any) -> None:
        calls.note(body)

    failing = Listener("a", callback, workshop.queue(), (0.05,))
    await workshop.working(failing, other)
    await workshop.publish("a", 1)
    letter = await workshop.dead_letter(failing.queue)
    assert letter.headers[wire.ERROR_TYPE] == kind
    assert letter.headers[wire.ATTEMPTS] == 2
    await workshop.publish("b", 2)
    await workshop.until_called(calls, 1)


async def test_a_listener_that_never_returns_is_cancelled_and_retried(workshop: Workshop) -> None:
    calls = Calls()

    @listen("a", queue=workshop.queue(), retry_delays=(0.05,))
    async def hangs(body: Any, attempt_count: int) -> None:
        calls.note(body, attempt_count)
        await asyncio.Event().wait()

    await workshop.working(hangs, handler_timeout=0.2)
    await workshop.publish("a", 1)
    letter = await workshop.dead_letter(hangs.queue)
    assert calls.attempts == [1, 2]
    assert letter.headers[wire.ERROR_TYPE] == "outbox_worker.errors.HandlerTimeoutError"
    assert "longer than handler_timeout, 0.2 s, and was cancelled" in str(letter.headers[wire.ERROR])
    assert workshop.metric("outbox_handler_timeouts_total", hangs.queue) == 2


async def test_a_thread_that_never_returns_is_left_behind_and_its_message_retried(workshop: Workshop) -> None:
    attempts: list[int] = []
    end = threading.Event()

    @listen("a", queue=workshop.queue(), retry_delays=(0.05,))
    def hangs(body: Any, attempt_count: int) -> None:
        attempts.append(attempt_count)
        if attempt_count == 1:
            end.wait(timeout=60)

    try:
        await workshop.working(hangs, handler_timeout=0.3)
        await workshop.publish("a", 1)
        await workshop.until(lambda: attempts == [1, 2], "the second attempt")
        await workshop.until_empty(hangs.queue)
    finally:
        end.set()
    assert workshop.metric("outbox_handler_timeouts_total", hangs.queue) == 1


async def test_messages_behind_hung_threads_are_called_and_not_timed_out_unheard(workshop: Workshop) -> None:
    bodies: list[int] = []
    end = threading.Event()

    @listen("a", queue=workshop.queue(), retry_delays=())
    def hangs_at_first(body: int) -> None:
        bodies.append(body)
        if body < 2:
            end.wait(timeout=60)

    try:
        running = await workshop.working(hangs_at_first, handler_timeout=0.3, prefetch_count=2)
        for number in range(10):
            await workshop.publish("a", number)
        await workshop.until(lambda: len(bodies) == 10, lambda: f"all to be called: {bodies}")
        await workshop.until_empty(hangs_at_first.queue)
        letters = [await workshop.dead_letter(hangs_at_first.queue) for _ in range(2)]
        assert {letter.body for letter in letters} == {b"0", b"1"}
        assert "2 calls that timed out still run" in (running.worker.unready_reason() or "")
    finally:
        end.set()
    await workshop.until_ready(running)
    assert await workshop.depth(f"{hangs_at_first.queue}.dlq") == 0


async def test_with_too_many_hung_threads_messages_wait_in_their_queue(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outbox_worker.worker._MOST_ABANDONED", 2)
    bodies: list[int] = []
    end = threading.Event()

    @listen("a", queue=workshop.queue(), retry_delays=())
    def hangs(body: int) -> None:
        bodies.append(body)
        end.wait(timeout=60)

    try:
        running = await workshop.working(hangs, handler_timeout=0.3, prefetch_count=2)
        for number in range(6):
            await workshop.publish("a", number)
        await workshop.until_unconsumed(hangs.queue)
        await workshop.until_depth(hangs.queue, 4)
        assert len(bodies) == 2
        assert "2 calls that timed out still run" in (running.worker.unready_reason() or "")
    finally:
        end.set()
    await workshop.until(lambda: len(bodies) == 6, lambda: f"the others to be called: {bodies}")
    await workshop.until_empty(hangs.queue)
    await workshop.until_ready(running)
    assert sorted(bodies) == list(range(6))
    assert await workshop.depth(f"{hangs.queue}.dlq") == 2


async def test_a_worker_with_too_many_hung_threads_leaves_its_messages_to_another(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outbox_worker.worker._MOST_ABANDONED", 1)
    bodies: list[int] = []
    end = threading.Event()

    @listen("a", queue=workshop.queue(), ordered=True, retry_delays=())
    def hangs_once(body: int) -> None:
        bodies.append(body)
        if len(bodies) == 1:
            end.wait(timeout=60)

    try:
        running = await workshop.working(hangs_once, handler_timeout=0.3, prefetch_count=1)
        for number in range(3):
            await workshop.publish("a", number)
        await workshop.until_unconsumed(hangs_once.queue)
        await workshop.working(hangs_once)
        await workshop.until(lambda: bodies == [0, 1, 2], lambda: f"all to be called: {bodies}")
        await running.stop()
    finally:
        end.set()
    assert await workshop.depth(f"{hangs_once.queue}.dlq") == 1


async def test_the_time_in_which_a_call_waits_for_a_thread_does_not_count(
    workshop: Workshop, services: Services
) -> None:
    bodies: list[int] = []
    end = threading.Event()

    @listen("a", queue=workshop.queue(), retry_delays=())
    def hangs_once(body: int) -> None:
        bodies.append(body)
        if len(bodies) == 1:
            end.wait(timeout=60)

    try:
        await workshop.working(hangs_once, handler_timeout=8, prefetch_count=1)
        await workshop.publish("a", 1)
        await workshop.until(lambda: bodies == [1], "the first call")
        # Delivered again, it waits for the thread until the first call has timed out.
        await cut(services, workshop, "consuming")
        await workshop.until_empty(hangs_once.queue)
    finally:
        end.set()
    assert bodies == [1, 1]
    assert workshop.metric("outbox_handler_timeouts_total", hangs_once.queue) == 1
    assert await workshop.depth(f"{hangs_once.queue}.dlq") == 0


async def test_a_listener_that_finishes_in_spite_of_its_timeout_has_succeeded(workshop: Workshop) -> None:
    calls = Calls()

    @listen("a", queue=workshop.queue(), retry_delays=(0.05,))
    async def insists(body: Any) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            calls.note(body)

    await workshop.working(insists, handler_timeout=0.2)
    await workshop.publish("a", 1)
    await workshop.until_called(calls, 1)
    await workshop.until_empty(insists.queue)
    assert workshop.metric("outbox_messages_processed_total", insists.queue, status="success") == 1
    # The task is free of the cancellation: another message, another timeout, and so on.
    await workshop.publish("a", 2)
    await workshop.until_called(calls, 2)


async def test_middleware_is_around_the_call_the_first_outermost(workshop: Workshop) -> None:
    notes: list[str] = []
    messages: list[Delivery] = []

    def named(name: str) -> Any:
        async def around(call: Callable[[], Awaitable[Any]], message: Delivery) -> Any:
            messages.append(message)
            notes.append(f"{name} before")
            result = await call()
            notes.append(f"{name} after {result}")
            return result

        return around

    @listen("a", queue=workshop.queue())
    async def handler(body: Any) -> str:
        notes.append(f"handler {body}")
        return "done"

    await workshop.working(handler, middleware=[named("outer"), named("inner")])
    message_id = await workshop.publish("a", 1, headers={"own": "header"})
    await workshop.until(lambda: len(notes) == 5, "all notes")
    assert notes == ["outer before", "inner before", "handler 1", "inner after done", "outer after done"]
    assert messages[0] is messages[1]
    assert messages[0].message_id == message_id
    assert messages[0].headers["own"] == "header"


async def test_middleware_sees_errors_and_may_change_them(workshop: Workshop) -> None:
    seen: list[str] = []

    async def around(call: Callable[[], Awaitable[Any]], message: Delivery) -> Any:
        try:
            return await call()
        except ZeroDivisionError as error:
            seen.append(str(error))
            if message.body == b"1":
                return None
            raise LookupError("translated") from error

    @listen("a", queue=workshop.queue(), retry_delays=())
    async def handler(body: Any) -> None:
        raise ZeroDivisionError(body)

    await workshop.working(handler, middleware=[around])
    await workshop.publish("a", 1)
    await workshop.publish("a", 2)
    letter = await workshop.dead_letter(handler.queue)
    assert letter.headers[wire.ERROR] == "translated"
    assert sorted(seen) == ["1", "2"]
    await workshop.until_empty(handler.queue)
    assert workshop.metric("outbox_messages_processed_total", handler.queue, status="success") == 1
