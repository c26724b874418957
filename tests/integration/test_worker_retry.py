"""A failing message walks through its delay tiers, and ends in the dead-letter queue with its story."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client import REGISTRY

from outbox import Constant, Delays, Reject, Retry, listen, wire
from tests.integration.working import Calls, Workshop, workshop_at

MS = (0.1, 0.2, 0.4)


@pytest.fixture
async def workshop(rabbitmq_url: str) -> AsyncIterator[Workshop]:
    async with workshop_at(rabbitmq_url) as workshop:
        yield workshop


async def test_a_ladder_is_climbed_step_by_step_and_ends_in_the_dead_letter_queue(workshop: Workshop) -> None:
    calls = Calls()
    keys: list[str] = []

    @listen("user.*", queue=workshop.queue(), retry_delays=MS)
    async def on_user(user: Any, attempt_count: int, routing_key: str) -> None:
        calls.note(user, attempt_count)
        keys.append(routing_key)
        raise ZeroDivisionError("no luck")

    await workshop.working(on_user)
    before = datetime.now(UTC)
    message_id = await workshop.publish("user.created", {"id": 1})
    letter = await workshop.dead_letter(on_user.queue)
    assert calls.attempts == [1, 2, 3, 4]
    assert calls.bodies == [{"id": 1}] * 4
    assert keys == ["user.created"] * 4
    waited = [later - earlier for earlier, later in zip(calls.times, calls.times[1:], strict=False)]
    assert all(real >= asked for real, asked in zip(waited, MS, strict=True)), waited

    assert letter.message_id == message_id
    assert json.loads(letter.body) == {"id": 1}
    headers = letter.headers
    assert headers[wire.ERROR] == "no luck"
    assert headers[wire.ERROR_TYPE] == "builtins.ZeroDivisionError"
    assert 'raise ZeroDivisionError("no luck")' in str(headers[wire.TRACEBACK])
    assert headers[wire.ATTEMPTS] == 4
    assert headers[wire.ROUTING_KEY] == "user.created"
    assert headers[wire.QUEUE] == on_user.queue
    first, last = (
        datetime.fromisoformat(str(headers[name])) for name in (wire.FIRST_FAILED_AT, wire.FAILED_AT)
    )
    assert before - timedelta(milliseconds=1) <= first
    assert last - first >= timedelta(seconds=sum(MS))
    assert last <= datetime.now(UTC)
    await workshop.until_empty(on_user.queue)


async def test_the_same_tier_again_and_again_loses_nothing(workshop: Workshop) -> None:
    """The broker would take a second pass through a tier for a cycle, and drop the message."""
    calls = Calls()

    @listen("a", queue=workshop.queue(), retry_delays=(0.1, 0.1, 0.1))
    async def fails(body: Any, attempt_count: int) -> None:
        calls.note(body, attempt_count)
        raise ValueError(body)

    await workshop.working(fails)
    for number in range(20):
        await workshop.publish("a", number)
    letters = [await workshop.dead_letter(fails.queue) for _ in range(20)]
    assert sorted(json.loads(letter.body) for letter in letters) == list(range(20))
    assert len(calls) == 80
    for number in range(20):
        assert sorted(a for b, a in zip(calls.bodies, calls.attempts, strict=True) if b == number) == [
            1,
            2,
            3,
            4,
        ]
    assert all("x-death" not in letter.headers for letter in letters)


async def test_a_message_that_succeeds_later_is_done(workshop: Workshop) -> None:
    calls = Calls()

    @listen("a", queue=workshop.queue(), retry_delays=(0.05, 0.05))
    async def fails_once(body: Any, attempt_count: int) -> None:
        calls.note(body, attempt_count)
        if attempt_count == 1:
            raise ValueError("not yet")

    await workshop.working(fails_once)
    await workshop.publish("a", 1)
    await workshop.until_called(calls, 2)
    await workshop.until_empty(fails_once.queue)
    assert calls.attempts == [1, 2]
    assert await workshop.depth(f"{fails_once.queue}.dlq") == 0


async def test_reject_goes_straight_to_the_dead_letter_queue(workshop: Workshop) -> None:
    calls = Calls()

    @listen("a", queue=workshop.queue(), retry_delays=MS)
    async def rejects(body: Any) -> None:
        calls.note(body)
        raise Reject("never")

    await workshop.working(rejects)
    await workshop.publish("a", 1)
    letter = await workshop.dead_letter(rejects.queue)
    assert len(calls) == 1
    assert letter.headers[wire.ATTEMPTS] == 1
    assert letter.headers[wire.ERROR] == "never"
    assert letter.headers[wire.ERROR_TYPE] == "outbox.retry.Reject"


async def test_no_delays_are_no_retries(workshop: Workshop) -> None:
    calls = Calls()

    @listen("a", queue=workshop.queue(), retry_delays=())
    async def fails(body: Any) -> None:
        calls.note(body)
        raise ValueError("once is enough")

    await workshop.working(fails, retry_delays=MS)
    await workshop.publish("a", 1)
    letter = await workshop.dead_letter(fails.queue)
    assert len(calls) == 1
    assert letter.headers[wire.ATTEMPTS] == 1


async def test_a_listeners_own_delays_come_before_the_workers(workshop: Workshop) -> None:
    calls = {"own": Calls(), "default": Calls()}

    @listen("a", queue=workshop.queue("own"), retry_delays=(0.05,))
    async def own(body: Any) -> None:
        calls["own"].note(body)
        raise ValueError

    @listen("a", queue=workshop.queue("default"))
    async def default(body: Any) -> None:
        calls["default"].note(body)
        raise ValueError

    await workshop.working(own, default, retry_delays=(0.05, 0.05, 0.05))
    await workshop.publish("a", 1)
    assert (await workshop.dead_letter(own.queue)).headers[wire.ATTEMPTS] == 2
    assert (await workshop.dead_letter(default.queue)).headers[wire.ATTEMPTS] == 4
    assert (len(calls["own"]), len(calls["default"])) == (2, 4)


async def test_a_policy_retries_only_the_exceptions_it_names(workshop: Workshop) -> None:
    calls = Calls()

    @listen("a", queue=workshop.queue(), retry_delays=Constant(0.05, retries=2, only=ConnectionError))
    async def fails(body: Any) -> None:
        calls.note(body)
        raise ConnectionError if body == "connection" else ValueError

    await workshop.working(fails)
    await workshop.publish("a", "value")
    assert (await workshop.dead_letter(fails.queue)).headers[wire.ATTEMPTS] == 1
    await workshop.publish("a", "connection")
    assert (await workshop.dead_letter(fails.queue)).headers[wire.ATTEMPTS] == 3
    assert calls.bodies == ["value", *["connection"] * 3]


async def test_retry_after_takes_the_smallest_tier_that_is_not_shorter(workshop: Workshop) -> None:
    calls = Calls()

    @listen("a", queue=workshop.queue(), retry_delays=Delays((0.05, 0.3, 30), only=ConnectionError))
    async def not_now(body: Any) -> None:
        calls.note(body)
        if len(calls) == 1:
            raise Retry(after=0.1)

    await workshop.working(not_now)
    await workshop.publish("a", 1)
    await workshop.until_called(calls, 2)
    assert calls.times[1] - calls.times[0] >= 0.3
    assert REGISTRY.get_sample_value(
        "outbox_retry_attempts_total", {"queue": not_now.queue, "delay_seconds": "0.3"}
    )


async def test_the_expiration_limits_the_total_time_of_a_message_of_somebody_else(workshop: Workshop) -> None:
    calls = Calls()

    @listen("a", queue=workshop.queue(), retry_delays=Constant(0.2, retries=50))
    async def fails(body: Any) -> None:
        calls.note(body)
        raise ValueError("still")

    await workshop.working(fails)
    began = time.time()
    await workshop.publish("a", 1, expiration=1)
    letter = await workshop.dead_letter(fails.queue)
    assert 2 <= len(calls) <= 5
    assert letter.headers[wire.ERROR] == "still"
    failed_at = datetime.fromisoformat(str(letter.headers[wire.FAILED_AT])).timestamp()
    # The next attempt would have come too late.
    assert failed_at + 0.2 >= began + 1 - 0.05
    assert letter.expiration is None


async def test_a_deadline_that_passed_while_a_message_waited_is_kept(workshop: Workshop) -> None:
    calls = Calls()

    @listen("a", queue=workshop.queue())
    async def late(body: Any) -> None:
        calls.note(body)

    await workshop.working(late)
    await workshop.publish("a", 1, headers={wire.DEADLINE: int(time.time() * 1000) - 1})
    letter = await workshop.dead_letter(late.queue)
    assert len(calls) == 0
    assert letter.headers[wire.ERROR] == "its expiration ended before attempt 1"
    assert letter.headers[wire.ERROR_TYPE] == "outbox_worker.errors.ExpiredError"
    # Moved back by somebody, it would be handled.
    assert wire.DEADLINE not in letter.headers


async def test_a_body_that_does_not_fit_is_dead_lettered_at_once_with_the_reason(workshop: Workshop) -> None:
    calls = Calls()

    @listen("a", queue=workshop.queue(), retry_delays=MS)
    async def counts(body: int) -> None:
        calls.note(body)

    await workshop.working(counts)
    await workshop.publish("a", {"id": "x"})
    letter = await workshop.dead_letter(counts.queue)
    assert len(calls) == 0
    assert letter.headers[wire.ERROR_TYPE] == "outbox.arguments.BodyError"
    assert "the body does not fit the argument 'body'" in str(letter.headers[wire.ERROR])
    assert letter.headers[wire.ATTEMPTS] == 1


async def test_a_retried_message_keeps_all_that_it_says(workshop: Workshop) -> None:
    seen: list[Any] = []

    @listen("a.*", queue=workshop.queue(), retry_delays=(0.05,))
    async def fails_once(body: bytes, message: Any, attempt_count: int) -> None:
        seen.append(message)
        if attempt_count == 1:
            raise ValueError("again")

    await workshop.working(fails_once)
    sent = {
        "content_type": "image/png",
        "content_encoding": "gzip",
        "priority": 3,
        "correlation_id": "c",
        "reply_to": "r",
        "type": "t",
        "app_id": "shop",
        "timestamp": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    }
    headers = {"own": "yes", "number": 7, "nested": {"a": [1, 2.5, None, True]}}
    await workshop.publish("a.b", b"\x00\xff", headers=headers, message_id="the-id", **sent)
    await workshop.until(lambda: len(seen) == 2, "the second attempt")
    for message in seen:
        assert {name: getattr(message, name) for name in sent} == sent
        assert message.message_id == "the-id"
        assert message.body == b"\x00\xff"
        assert {name: message.headers[name] for name in headers} == headers


async def test_a_retry_waits_for_a_tier_that_was_deleted_and_declares_it(workshop: Workshop) -> None:
    calls = Calls()
    go = asyncio.Event()

    @listen("a", queue=workshop.queue(), retry_delays=(0.05,))
    async def fails_once(body: Any, attempt_count: int) -> None:
        calls.note(body, attempt_count)
        await go.wait()
        if attempt_count == 1:
            raise ValueError("again")

    await workshop.working(fails_once)
    await workshop.publish("a", 1)
    await workshop.publish("a", 2)
    await workshop.until_called(calls, 2)
    tier = f"{workshop.exchange_name}.delay_50ms"
    await workshop.channel.queue_delete(tier)
    await workshop.channel.exchange_delete(tier)
    go.set()
    await workshop.until_called(calls, 4)
    assert sorted(calls.attempts) == [1, 1, 2, 2]
    await workshop.until_empty(fails_once.queue)


async def test_a_dead_letter_that_was_moved_back_begins_anew(workshop: Workshop) -> None:
    calls = Calls()

    @listen("a", queue=workshop.queue(), retry_delays=(0.05,))
    async def fails(body: Any, attempt_count: int) -> None:
        calls.note(body, attempt_count)
        raise ValueError("still broken")

    await workshop.working(fails)
    await workshop.publish("a", 1)
    first = await workshop.dead_letter(fails.queue)
    # What a shovel does.
    await workshop.channel.default_exchange.publish(first, fails.queue)
    second = await workshop.dead_letter(fails.queue)
    assert calls.attempts == [1, 2, 1, 2]
    assert second.headers[wire.ATTEMPTS] == 2
    assert second.headers[wire.ROUTING_KEY] == "a"
    assert str(second.headers[wire.FIRST_FAILED_AT]) > str(first.headers[wire.FAILED_AT])


async def test_headers_that_leave_no_room_are_dead_lettered_with_a_short_error(workshop: Workshop) -> None:
    @listen("a", queue=workshop.queue(), retry_delays=())
    async def fails(body: Any) -> None:
        raise ValueError("x" * 5000)

    await workshop.working(fails)
    await workshop.publish("a", 1, headers={"large": "x" * 128_500})
    letter = await workshop.dead_letter(fails.queue)
    assert wire.TRACEBACK not in letter.headers
    assert str(letter.headers[wire.ERROR]).startswith("xxx")
    assert letter.headers["large"] == "x" * 128_500


async def test_headers_that_leave_no_room_at_all_are_left_to_the_broker(workshop: Workshop) -> None:
    @listen("a", queue=workshop.queue(), retry_delays=(0.05,))
    async def fails(body: Any) -> None:
        raise ValueError("no room")

    await workshop.working(fails)
    message_id = await workshop.publish("a", 1, headers={"large": "x" * 130_900})
    letter = await workshop.dead_letter(fails.queue)
    assert letter.message_id == message_id
    assert letter.headers["large"] == "x" * 130_900
    assert "x-death" in letter.headers
