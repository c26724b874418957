"""`MemoryOutbox.drain`: which listeners get what, and what happens when they fail."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest
from pydantic import BaseModel

from outbox import (
    Emitter,
    Exponential,
    Listener,
    NoRetry,
    Reject,
    Retry,
    SyncEmitter,
    get_tracking_ids,
    listen,
)
from outbox.arguments import BodyError, ListenerError
from outbox.testing import Clock, MemoryOutbox, RecordedMessage
from outbox.topology import TopologyError

emitter = Emitter()
sync_emitter = SyncEmitter()


class User(BaseModel):
    id: int


def emit(outbox: MemoryOutbox, routing_key: str, body: object = 1, **options: object) -> None:
    with outbox.sync_session() as session, session.begin():
        sync_emitter.emit(session, routing_key, body, **options)  # type: ignore[arg-type]


async def test_a_listener_gets_the_body_as_its_annotation_says_and_what_it_names() -> None:
    calls: list[object] = []

    @listen("user.*", queue="mail")
    async def on_user(
        user: User, routing_key: str, message: RecordedMessage, queue_name: str, attempt_count: int
    ) -> None:
        calls.append((user, routing_key, message, queue_name, attempt_count))

    outbox = MemoryOutbox([on_user])
    emit(outbox, "user.created", {"id": 7})
    await outbox.drain()
    [message] = outbox.messages
    assert calls == [(User(id=7), "user.created", message, "mail", 1)]
    assert [(handled.message, handled.queue, handled.attempts) for handled in outbox.handled] == [
        (message, "mail", 1)
    ]
    assert outbox.pending == []
    await outbox.drain()
    assert len(calls) == 1


def ignore(body: object) -> None: ...
def ignore_too(body: object) -> None: ...


async def test_every_listener_whose_binding_key_matches_gets_a_message() -> None:
    calls: list[str] = []

    @listen("#")
    def on_everything(body: object, routing_key: str) -> None:
        calls.append(f"all {routing_key}")

    @listen("user.*")
    async def on_users(body: object, routing_key: str) -> None:
        calls.append(f"users {routing_key}")

    outbox = MemoryOutbox([on_everything, on_users])
    emit(outbox, "user.created")
    emit(outbox, "order.paid")
    await outbox.drain()
    assert calls == ["all user.created", "users user.created", "all order.paid"]


async def test_a_message_that_matches_no_listener_is_unroutable() -> None:
    outbox = MemoryOutbox([Listener("user.created", ignore)])
    emit(outbox, "user.deleted")
    await outbox.drain()
    assert outbox.unroutable == outbox.messages
    assert (outbox.pending, outbox.handled) == ([], [])


async def test_uncommitted_messages_are_not_delivered() -> None:
    outbox = MemoryOutbox([Listener("#", ignore)])
    async with outbox.session() as session:
        await emitter.emit(session, "k", 1)
        await outbox.drain()
        assert outbox.handled == []
        await session.commit()
    await outbox.drain()
    assert len(outbox.handled) == 1


async def test_tracking_ids_follow_a_message_through_the_listeners_that_emit_in_turn() -> None:
    seen: dict[str, Sequence[str]] = {}

    @listen("user.created")
    async def on_user_created(user: dict[str, int], tracking_ids: Sequence[str]) -> None:
        seen["created"] = tracking_ids
        async with outbox.session() as session:
            await emitter.emit(session, "user.welcome_email", {"id": user["id"]})
            await emitter.emit(session, "user.created_notification", {"id": user["id"]})
            await session.commit()

    @listen("user.welcome_email")
    async def on_user_welcome_email(user: object) -> None:
        seen["email"] = get_tracking_ids()

    @listen("user.created_notification")
    def on_user_created_notification(user: object, tracking_ids: Sequence[str]) -> None:
        seen["notification"] = tracking_ids

    outbox = MemoryOutbox([on_user_created, on_user_welcome_email, on_user_created_notification])
    emit(outbox, "user.created", {"id": 123})
    await outbox.drain()
    first, second, third = (str(message.message_id) for message in outbox.messages)
    assert seen == {"created": [first], "email": [first, second], "notification": [first, third]}
    assert get_tracking_ids() == []


async def test_a_failing_listener_is_retried_at_once_until_it_succeeds() -> None:
    attempts: list[int] = []

    @listen("k", queue="q")
    async def flaky(body: object, attempt_count: int) -> None:
        attempts.append(attempt_count)
        if attempt_count < 4:
            raise ConnectionError

    outbox = MemoryOutbox([flaky])
    emit(outbox, "k")
    await outbox.drain()
    assert attempts == [1, 2, 3, 4]
    assert [(handled.queue, handled.attempts) for handled in outbox.handled] == [("q", 4)]
    assert (outbox.dead_letters, outbox.retrying) == ([], [])


async def test_a_listener_that_keeps_failing_dead_letters_with_the_last_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @listen("k", queue="q")
    def broken(body: object, attempt_count: int) -> None:
        raise ConnectionError(f"attempt {attempt_count}")

    outbox = MemoryOutbox([broken])
    emit(outbox, "k")
    await outbox.drain()
    [letter] = outbox.dead_letters
    assert (letter.message, letter.queue, letter.attempts) == (outbox.messages[0], "q", 5)
    with pytest.raises(ConnectionError, match="attempt 5"):
        raise letter.error
    assert outbox.handled == []
    assert "q: attempt 5 at k" in caplog.text


async def test_retries_walk_the_ladder_by_the_clock() -> None:
    attempts: list[int] = []

    @listen("k", queue="q")
    async def broken(body: object, attempt_count: int) -> None:
        attempts.append(attempt_count)
        raise ConnectionError

    clock = Clock()
    outbox = MemoryOutbox([broken], clock=clock)
    emit(outbox, "k")
    await outbox.drain()
    for made, delay in enumerate((1, 10, 60, 300), start=1):
        [retry] = outbox.retrying
        assert (retry.queue, retry.attempts, retry.due) == ("q", made, clock.now + timedelta(seconds=delay))
        clock.advance(delay - 0.001)
        await outbox.drain()
        assert attempts == list(range(1, made + 1))
        clock.advance(timedelta(milliseconds=1))
        await outbox.drain()
        assert attempts == list(range(1, made + 2))
    assert [letter.attempts for letter in outbox.dead_letters] == [5]
    assert (outbox.retrying, outbox.pending) == ([], [])


@pytest.mark.parametrize(
    ("listener_delays", "outbox_delays", "attempts"),
    [
        (None, (), 1),
        (None, (5, 5), 3),
        (None, NoRetry(), 1),
        ((1,), (5, 5), 2),
        ((), (5, 5), 1),
        (Exponential(1, retries=3, jitter=0.5), (), 4),
        (Exponential(1, retries=3, only=KeyError), (), 1),
        (Exponential(1, retries=3, only=(KeyError, ZeroDivisionError)), (), 4),
    ],
)
async def test_the_policy_is_the_listeners_own_or_the_outboxs(
    listener_delays: Exponential | tuple[int, ...] | None,
    outbox_delays: NoRetry | tuple[int, ...],
    attempts: int,
) -> None:
    @listen("k", retry_delays=listener_delays)
    def broken(body: object) -> None:
        raise ZeroDivisionError

    outbox = MemoryOutbox([broken], retry_delays=outbox_delays)
    emit(outbox, "k")
    await outbox.drain()
    assert [letter.attempts for letter in outbox.dead_letters] == [attempts]


async def test_by_the_clock_a_delay_has_no_jitter() -> None:
    @listen("k", retry_delays=Exponential(10, jitter=0.5))
    def broken(body: object) -> None:
        raise ZeroDivisionError

    clock = Clock()
    outbox = MemoryOutbox([broken], clock=clock)
    emit(outbox, "k")
    await outbox.drain()
    assert [retry.due - clock.now for retry in outbox.retrying] == [timedelta(seconds=10)]


async def test_reject_dead_letters_at_once() -> None:
    @listen("k")
    async def refusing(body: object) -> None:
        raise Reject("no such user")

    outbox = MemoryOutbox([refusing])
    emit(outbox, "k")
    await outbox.drain()
    [letter] = outbox.dead_letters
    assert (letter.attempts, str(letter.error)) == (1, "no such user")


async def test_a_retry_asked_for_waits_for_the_tier_that_is_long_enough() -> None:
    @listen("k", queue="q", retry_delays=(1, 10, 60))
    def not_now(body: object, attempt_count: int) -> None:
        if attempt_count == 1:
            raise Retry(after=30)

    clock = Clock()
    outbox = MemoryOutbox([not_now], clock=clock)
    emit(outbox, "k")
    await outbox.drain()
    assert [retry.due - clock.now for retry in outbox.retrying] == [timedelta(seconds=60)]
    clock.advance(60)
    await outbox.drain()
    assert [handled.attempts for handled in outbox.handled] == [2]


async def test_a_body_that_does_not_fit_dead_letters_without_a_call() -> None:
    @listen("user.created")
    def on_user(user: User) -> None:
        pytest.fail("called")

    outbox = MemoryOutbox([on_user])
    emit(outbox, "user.created", {"name": "jo"})
    await outbox.drain()
    [letter] = outbox.dead_letters
    assert isinstance(letter.error, BodyError)
    assert letter.attempts == 1


async def test_two_listeners_of_a_message_fail_independently() -> None:
    calls: list[str] = []

    @listen("k", queue="broken", retry_delays=(1, 1))
    def broken(body: object) -> None:
        calls.append("broken")
        raise ZeroDivisionError

    @listen("k", queue="fine")
    def fine(body: object) -> None:
        calls.append("fine")

    outbox = MemoryOutbox([broken, fine])
    emit(outbox, "k")
    await outbox.drain()
    assert calls == ["broken", "fine", "broken", "broken"]
    assert [handled.queue for handled in outbox.handled] == ["fine"]
    assert [letter.queue for letter in outbox.dead_letters] == ["broken"]


async def test_what_a_failed_attempt_did_not_commit_is_dropped() -> None:
    @listen("k")
    async def flaky(body: object, attempt_count: int) -> None:
        async with outbox.session() as session, session.begin():
            await emitter.emit(session, "done", attempt_count)
            if attempt_count == 1:
                raise ZeroDivisionError

    outbox = MemoryOutbox([flaky])
    emit(outbox, "k")
    await outbox.drain()
    assert [(message.routing_key, message.body) for message in outbox.messages] == [("k", 1), ("done", 2)]


async def test_a_function_with_two_topics_gets_a_message_once() -> None:
    calls: list[str] = []

    def on_user(user: object, routing_key: str) -> None:
        calls.append(routing_key)

    outbox = MemoryOutbox([Listener("user.*", on_user), Listener("*.created", on_user)])
    emit(outbox, "user.created")
    emit(outbox, "order.created")
    await outbox.drain()
    assert calls == ["user.created", "order.created"]


async def test_an_endless_chain_ends_with_an_error_that_names_it() -> None:
    @listen("ping", queue="pong")
    async def pong(body: object) -> None:
        async with outbox.session() as session, session.begin():
            await emitter.emit(session, "ping", 1)

    outbox = MemoryOutbox([pong])
    emit(outbox, "ping")
    with pytest.raises(RuntimeError, match=r"50 deliveries, and the next is 'ping' to pong.*limit=…"):
        await outbox.drain(limit=50)
    assert len(outbox.handled) == 50
    with pytest.raises(RuntimeError, match="10000 deliveries"):
        await outbox.drain()


async def test_exactly_as_many_deliveries_as_the_limit_are_fine() -> None:
    outbox = MemoryOutbox([Listener("#", ignore)])
    for _ in range(3):
        emit(outbox, "k")
    await outbox.drain(limit=3)
    assert len(outbox.handled) == 3


async def test_a_listener_that_drains_is_told_not_to() -> None:
    @listen("k")
    async def draining(body: object) -> None:
        await outbox.drain()

    outbox = MemoryOutbox([draining], retry_delays=())
    emit(outbox, "k")
    await outbox.drain()
    assert "drain() is running already" in str(outbox.dead_letters[0].error)


async def test_what_is_no_mere_failure_ends_the_drain() -> None:
    @listen("k")
    def interrupted(body: object) -> None:
        raise KeyboardInterrupt

    outbox = MemoryOutbox([interrupted])
    emit(outbox, "k")
    with pytest.raises(KeyboardInterrupt):
        await outbox.drain()
    await outbox.drain()
    assert (outbox.handled, outbox.dead_letters) == ([], [])


def test_drain_sync_runs_async_listeners_in_a_loop_of_its_own() -> None:
    @listen("k")
    async def on_k(body: object) -> None:
        await asyncio.sleep(0)

    outbox = MemoryOutbox([on_k])
    emit(outbox, "k")
    outbox.drain_sync()
    assert len(outbox.handled) == 1


def test_drain_sync_runs_sync_listeners_in_no_loop_at_all() -> None:
    @listen("k")
    def on_k(body: object, attempt_count: int) -> None:
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        if attempt_count == 1:
            raise ZeroDivisionError

    outbox = MemoryOutbox([on_k])
    emit(outbox, "k")
    outbox.drain_sync()
    assert [handled.attempts for handled in outbox.handled] == [2]


def test_drain_sync_has_a_limit_as_well() -> None:
    @listen("ping")
    def ping(body: object) -> None:
        emit(outbox, "ping")

    outbox = MemoryOutbox([ping])
    emit(outbox, "ping")
    with pytest.raises(RuntimeError, match="5 deliveries"):
        outbox.drain_sync(limit=5)


async def test_drain_sync_in_an_event_loop_says_what_to_write() -> None:
    with pytest.raises(RuntimeError, match=r"write `await outbox\.drain\(\)`"):
        MemoryOutbox().drain_sync()


def test_what_a_worker_would_refuse_is_refused_when_the_outbox_is_made() -> None:
    def unresolvable(body: "Missing") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(TypeError, match=r"decorate it with @listen"):
        MemoryOutbox([ignore])  # type: ignore[list-item]
    with pytest.raises(ListenerError, match="Missing"):
        MemoryOutbox([Listener("k", unresolvable)])
    with pytest.raises(ValueError, match="queue 'q' has different listeners, for 'a' and 'b'; name one"):
        MemoryOutbox([Listener("a", ignore, queue="q"), Listener("b", ignore_too, queue="q")])
    with pytest.raises(TopologyError, match="is the dead-letter queue of"):
        MemoryOutbox([Listener("a", ignore, queue="q"), Listener("b", ignore, queue="q.dlq")])
