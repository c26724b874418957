"""What an outbox does, stated once: `outbox.testing.MemoryOutbox` and the real thing do the same."""

import asyncio
import contextlib
import functools
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from outbox import Emitter, Listener, OutboxMessage, Reject, get_tracking_ids
from tests.integration.conformance import InMemory, Outbox, real

emitter = Emitter()
Start = Callable[..., contextlib.AbstractAsyncContextManager[Outbox]]
LATER = timedelta(days=1)


@pytest.fixture(params=["memory", "real"])
def start(request: pytest.FixtureRequest) -> Start:
    """Starts an outbox with the given listeners."""
    if request.param == "real":
        urls = [request.getfixturevalue(name) for name in ("postgres_url", "rabbitmq_url")]
        return lambda *listeners: real(urls[0], urls[1], listeners)

    @contextlib.asynccontextmanager
    async def in_memory(*listeners: Listener[..., Any]) -> AsyncIterator[Outbox]:
        yield InMemory(listeners)

    return in_memory


class Ledger(list[Any]):
    """A listener that notes its bodies."""

    def listener(self, binding_key: str = "k", **options: Any) -> Listener[..., Any]:
        async def note(body: object) -> None:
            self.append(body)

        return Listener(binding_key, note, queue="q", **options)


async def emit(outbox: Outbox, body: object, routing_key: str = "k", **options: Any) -> Any:
    async with outbox.session() as session, session.transaction():
        return await emitter.emit(session, routing_key, body, **options)


async def test_only_what_is_committed_is_delivered(start: Start) -> None:
    ledger = Ledger()
    async with start(ledger.listener()) as outbox:
        await emit(outbox, "committed")
        with contextlib.suppress(ZeroDivisionError):
            async with outbox.session() as session, session.transaction():
                await emitter.emit(session, "k", "rolled back")
                raise ZeroDivisionError
        async with outbox.session() as session, session.transaction():
            await emitter.emit(session, "k", "before the savepoint")
            with contextlib.suppress(ZeroDivisionError):
                async with session.transaction():
                    await emitter.emit(session, "k", "in a savepoint rolled back")
                    raise ZeroDivisionError
            async with session.transaction():
                await emitter.emit(session, "k", "in a savepoint")
        await outbox.settle(ledger, 3)
    assert sorted(ledger) == ["before the savepoint", "committed", "in a savepoint"]


async def test_a_transaction_takes_the_options_of_asyncpg(start: Start) -> None:
    ledger = Ledger()
    async with start(ledger.listener()) as outbox:
        async with outbox.session() as session, session.transaction(isolation="serializable"):
            await emitter.emit(session, "k", 1)
        await outbox.settle(ledger, 1)


async def test_a_pending_timer_is_kept_replaced_or_cancelled(start: Start) -> None:
    ledger = Ledger()
    async with start(ledger.listener()) as outbox:
        assert await emit(outbox, "first", timer_id="kept", eta=-LATER) is not None
        async with outbox.session() as session, session.transaction():
            set_timer = functools.partial(emitter.emit, session, "k", timer_id="t")
            assert await set_timer("first", eta=LATER) is not None
            assert await set_timer("second", eta=LATER) is None
            assert await set_timer("replacing", eta=-LATER, replace=True) is not None
            assert await emitter.emit(session, "k", "cancelled", timer_id="c", eta=LATER) is not None
            assert await emitter.cancel_timer(session, "k", "c")
            assert not await emitter.cancel_timer(session, "k", "c")
        await outbox.settle(ledger, 2)
        assert await emit(outbox, "again", timer_id="t", eta=-LATER) is not None
        await outbox.settle(ledger, 3)
    assert sorted(ledger) == ["again", "first", "replacing"]


@pytest.mark.parametrize("eta", [datetime.max, datetime.max.replace(tzinfo=UTC)])  # noqa: DTZ901
async def test_the_last_moment_is_an_eta(start: Start, eta: datetime) -> None:
    async with start(Ledger().listener()) as outbox:
        assert await emit(outbox, "at the end of time", eta=eta) is not None
        await outbox.expect_pending("k")


async def test_messages_with_one_ordering_key_come_in_the_order_of_emits(start: Start) -> None:
    ledger = Ledger()
    soon = datetime.now(UTC) + timedelta(seconds=1.5)
    async with start(ledger.listener(ordered=True)) as outbox:
        await emit(outbox, "first, due last", ordering_key="a", eta=soon)
        await emit(outbox, "second", ordering_key="a")
        await emit(outbox, "third", ordering_key="a", eta=-LATER)
        await emit(outbox, "of another key", ordering_key="b")
        await outbox.settle(ledger, 4)
    assert ledger == ["of another key", "first, due last", "second", "third"]


async def test_a_replaced_timer_is_the_last_of_its_ordering_key(start: Start) -> None:
    ledger = Ledger()
    async with start(ledger.listener(ordered=True)) as outbox:
        await emit(outbox, "replaced", ordering_key="a", timer_id="t", eta=LATER)
        await emit(outbox, "second", ordering_key="a")
        await emit(outbox, "replacing", ordering_key="a", timer_id="t", eta=-LATER, replace=True)
        await outbox.settle(ledger, 2)
        await outbox.expect_pending()
    assert ledger == ["second", "replacing"]


async def test_a_bulk_tells_which_timers_were_pending(start: Start) -> None:
    ledger = Ledger()
    async with start(ledger.listener()) as outbox:
        async with outbox.session() as session, session.transaction():
            await emitter.emit(session, "k", "first", timer_id="b", eta=-LATER)
            messages = [
                OutboxMessage("k", "new", timer_id="c", eta=-LATER),
                OutboxMessage("k", "pending", timer_id="b"),
                OutboxMessage("k", "twice", timer_id="c"),
                OutboxMessage("k", "plain"),
                OutboxMessage("k", "keyed", timer_id="a", ordering_key="o", eta=-LATER),
            ]
            ids = await emitter.bulk_emit(session, (message for message in messages))
        assert [message_id is None for message_id in ids] == [False, True, True, False, False]
        await outbox.settle(ledger, 4)
    assert sorted(ledger) == ["first", "keyed", "new", "plain"]


async def test_a_listener_gets_what_its_patterns_match_and_its_arguments_name(start: Start) -> None:
    calls: list[tuple[object, ...]] = []

    async def note(body: object, routing_key: str, queue_name: str, attempt_count: int) -> None:
        calls.append((body, routing_key, queue_name, attempt_count))

    async with start(
        Listener("order.*.placed", note, queue="q"), Listener("order.#", note, queue="all")
    ) as outbox:
        await emit(outbox, 1, "order.eu.placed")
        await emit(outbox, 2, "order")
        await outbox.settle(calls, 3)
    assert sorted(calls) == [
        (1, "order.eu.placed", "all", 1),
        (1, "order.eu.placed", "q", 1),
        (2, "order", "all", 1),
    ]


@pytest.mark.parametrize(
    ("annotation", "body", "content_type"),
    [
        (bytes, b"\0\xff", None),
        (bytes | None, b"null", None),
        (str, "text", None),
        (str, "null", "text/plain"),
        (float, 1.5, None),
        (dict, {"a": [None, 1]}, None),
    ],
)
async def test_a_body_is_received_as_it_was_emitted(
    start: Start, annotation: object, body: object, content_type: str | None
) -> None:
    received: list[object] = []

    async def note(body: object) -> None:
        received.append(body)

    note.__annotations__["body"] = annotation
    async with start(Listener("k", note, queue="q")) as outbox:
        await emit(outbox, body, content_type=content_type)
        await outbox.settle(received, 1)
    assert received == [body]


async def test_an_unroutable_message_holds_back_its_ordering_key(start: Start) -> None:
    ledger = Ledger()
    async with start(ledger.listener()) as outbox:
        await emit(outbox, "nobody listens", "elsewhere", ordering_key="a")
        await emit(outbox, "held", ordering_key="a")
        await emit(outbox, "free")
        await outbox.settle(ledger, 1)
        await outbox.expect_pending("elsewhere", "k")
    assert ledger == ["free"]


async def test_a_failed_message_is_retried_and_then_dead_lettered(start: Start) -> None:
    attempts: list[tuple[object, int]] = []

    async def fail(body: str, attempt_count: int) -> None:
        attempts.append((body, attempt_count))
        if body == "for good" or attempt_count < 3:
            raise ZeroDivisionError

    async with start(Listener("k", fail, queue="q")) as outbox:
        await emit(outbox, "for a while")
        await outbox.settle(attempts, 3)
        await emit(outbox, "for good")
        await outbox.settle(attempts, 6)
        assert await outbox.dead_letters("q", 1) == [(b'"for good"', "ZeroDivisionError")]
    assert attempts == [(body, number) for body in ("for a while", "for good") for number in (1, 2, 3)]


async def test_a_rejected_message_is_dead_lettered_at_once(start: Start) -> None:
    calls: list[object] = []

    async def reject(body: object) -> None:
        calls.append(body)
        raise Reject("never")

    async with start(Listener("k", reject, queue="q")) as outbox:
        await emit(outbox, 1)
        await outbox.settle(calls, 1)
        assert await outbox.dead_letters("q", 1) == [(b"1", "Reject")]


class User(BaseModel):
    id: int


async def test_a_body_that_does_not_fit_is_dead_lettered_without_a_call(start: Start) -> None:
    calls: list[User] = []

    def note(user: User) -> None:
        calls.append(user)

    async with start(Listener("k", note, queue="q")) as outbox:
        await emit(outbox, {"id": "not a number"})
        await emit(outbox, User(id=1))
        await outbox.settle(calls, 1)
        assert await outbox.dead_letters("q", 1) == [(b'{"id":"not a number"}', "BodyError")]
    assert calls == [User(id=1)]


async def test_listeners_run_sync_async_and_as_objects(start: Start) -> None:
    calls: list[str] = []

    def plain(body: object) -> None:
        calls.append(f"plain {body}")

    async def awaited(body: object) -> None:
        calls.append(f"async {body}")

    class Handler:
        async def __call__(self, body: object) -> None:
            calls.append(f"object {body}")

    listeners = [
        Listener("k", plain, queue="plain"),
        Listener("k", awaited, queue="async"),
        Listener("k", Handler(), queue="object"),
        Listener("k", functools.partial(awaited), queue="partial"),
    ]
    async with start(*listeners) as outbox:
        await emit(outbox, 1)
        await outbox.settle(calls, 4)
    assert sorted(calls) == ["async 1", "async 1", "object 1", "plain 1"]


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("work", ["async", "generator", "async generator"])
async def test_a_listener_that_returns_work_undone_fails(start: Start, kind: str, work: str) -> None:
    calls: list[object] = []
    ran: list[object] = []

    async def awaited(body: object) -> None:
        ran.append(body)

    def generator(body: object) -> Iterator[None]:
        ran.append(body)
        yield

    async def async_generator(body: object) -> AsyncIterator[None]:
        ran.append(body)
        yield

    function: Any = {"async": awaited, "generator": generator, "async generator": async_generator}[work]

    def wrapper(body: object) -> object:
        calls.append(body)
        return function(body)

    async def async_wrapper(body: object) -> object:
        return wrapper(body)

    callback = {"sync": wrapper, "async": async_wrapper}[kind]
    async with start(Listener("k", callback, queue="q", retry_delays=())) as outbox:
        await emit(outbox, 1)
        await outbox.settle(calls, 1)
        assert await outbox.dead_letters("q", 1) == [(b"1", "NotAwaitedError")]
    assert ran == []


async def test_an_exit_or_a_cancellation_in_a_listener_is_a_failed_attempt(start: Start) -> None:
    attempts: list[str] = []

    def exits(body: object) -> None:
        attempts.append("exit")
        sys.exit(3)

    async def cancels(body: object) -> None:
        attempts.append("cancel")
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    async with start(Listener("k", exits, queue="exits"), Listener("k", cancels, queue="cancels")) as outbox:
        await emit(outbox, 1)
        await outbox.settle(attempts, 6)
        assert await outbox.dead_letters("exits", 1) == [(b"1", "HandlerExitError")]
        assert await outbox.dead_letters("cancels", 1) == [(b"1", "HandlerCancelledError")]


async def test_tracking_ids_follow_from_one_emit_to_the_next(start: Start) -> None:
    histories: list[list[str]] = []
    outbox: Outbox

    async def first(body: object) -> None:
        histories.append(get_tracking_ids())
        await emit(outbox, body, "second")

    async def second(tracking_ids: list[str], body: object) -> None:
        histories.append(list(tracking_ids))

    async with start(Listener("first", first), Listener("second", second)) as outbox:
        message_id = await emit(outbox, 1, "first")
        await outbox.settle(histories, 2)
    assert histories[0] == [str(message_id)]
    assert histories[1][:-1] == histories[0]
    assert len(histories[1]) == 2
