"""`MemoryOutbox` and listeners that are called once, or in order."""

from typing import Any
from unittest.mock import Mock

import pytest

from outbox import Emitter, Listener, SyncEmitter, listen
from outbox.testing import Clock, MemoryOutbox, MemorySession
from outbox.topology import TopologyError

emitter = Emitter()


async def on_k(body: object) -> None: ...


def emit(outbox: MemoryOutbox, routing_key: str, *bodies: object) -> None:
    with outbox.sync_session() as session, session.begin():
        for body in bodies:
            SyncEmitter().emit(session, routing_key, body)


@pytest.mark.parametrize("name", ["connection", "session"])
async def test_what_an_exactly_once_listener_emits_through_its_transaction_commits_with_the_message(
    name: str,
) -> None:
    async def relayed(given: Any, body: object) -> None:
        await emitter.emit(given, "next", body)
        assert [message.routing_key for message in outbox.messages] == ["k"]

    async def by_connection(body: object, connection: MemorySession) -> None:
        await relayed(connection, body)

    async def by_session(body: object, session: MemorySession) -> None:
        await relayed(session, body)

    callback = by_connection if name == "connection" else by_session
    outbox = MemoryOutbox([listen("k", exactly_once=True)(callback), listen("next")(on_k)])
    emit(outbox, "k", 1)
    await outbox.drain()
    assert [handled.message.routing_key for handled in outbox.handled] == ["k", "next"]


async def test_what_a_failed_attempt_of_an_exactly_once_listener_emitted_is_undone() -> None:
    @listen("k", exactly_once=True)
    async def flaky(body: object, session: MemorySession, attempt_count: int) -> None:
        await emitter.emit(session, "next", attempt_count)
        if attempt_count == 1:
            raise ConnectionError

    outbox = MemoryOutbox([flaky])
    emit(outbox, "k", 1)
    await outbox.drain()
    assert [message.body for message in outbox.messages if message.routing_key == "next"] == [2]


async def test_an_exactly_once_listener_has_savepoints_in_its_transaction() -> None:
    @listen("k", exactly_once=True)
    async def partly(body: object, connection: MemorySession) -> None:
        async with connection.transaction():
            await emitter.emit(connection, "kept", 1)
        with pytest.raises(ConnectionError):
            async with connection.transaction():
                await emitter.emit(connection, "undone", 1)
                raise ConnectionError
        assert [message.routing_key for message in outbox.messages] == ["k"]

    outbox = MemoryOutbox([partly])
    emit(outbox, "k", 1)
    await outbox.drain()
    assert [message.routing_key for message in outbox.messages] == ["k", "kept"]
    assert outbox.dead_letters == []


@pytest.mark.parametrize("ending", ["commit", "rollback"])
async def test_an_exactly_once_listener_that_ends_its_transaction_itself_fails(ending: str) -> None:
    @listen("k", exactly_once=True, retry_delays=())
    async def hasty(body: object, session: MemorySession) -> None:
        await getattr(session, ending)()

    outbox = MemoryOutbox([hasty])
    emit(outbox, "k", 1)
    await outbox.drain()
    [letter] = outbox.dead_letters
    assert "leave commit and rollback to the worker" in str(letter.error)


async def test_the_session_of_an_exactly_once_listener_can_be_around_a_mock() -> None:
    @listen("k", exactly_once=True)
    async def store(body: object, session: Any) -> None:
        session.add(body)

    mock = Mock()
    outbox = MemoryOutbox([store], around=lambda: mock)
    emit(outbox, "k", "user")
    await outbox.drain()
    mock.add.assert_called_once_with("user")
    mock.commit.assert_called_once_with()


@pytest.mark.parametrize(
    ("options", "calls"),
    [({"exactly_once": True}, 1), ({"deduplicate": True}, 1), ({}, 2)],
)
async def test_a_message_delivered_again_is_handled_again_unless_it_is_for_once(
    options: dict[str, Any], calls: int
) -> None:
    seen: list[object] = []

    @listen("k", **options)
    async def count(body: object) -> None:
        seen.append(body)

    outbox = MemoryOutbox([count])
    emit(outbox, "k", 1)
    await outbox.drain()
    outbox.redeliver(outbox.messages[0])
    await outbox.drain()
    assert len(seen) == len(outbox.handled) == calls
    assert outbox.duplicates == outbox.messages * (2 - calls)


async def test_a_message_that_failed_before_is_no_duplicate() -> None:
    @listen("k", deduplicate=True, retry_delays=())
    def broken(body: object) -> None:
        raise ConnectionError

    outbox = MemoryOutbox([broken])
    emit(outbox, "k", 1)
    await outbox.drain()
    outbox.redeliver(outbox.messages[0])
    await outbox.drain()
    assert (len(outbox.dead_letters), outbox.duplicates) == (2, [])


class Recorder:
    """Calls of a listener that fails at "bad" so many times."""

    def __init__(self, failures: int) -> None:
        self.calls: list[str] = []
        self._failures = failures

    def __call__(self, body: str, attempt_count: int) -> None:
        self.calls.append(f"{body} {attempt_count}")
        if body == "bad" and attempt_count <= self._failures:
            raise ConnectionError


async def test_a_message_that_fails_in_order_holds_up_the_rest_by_the_clock() -> None:
    recorder, clock = Recorder(2), Clock()
    outbox = MemoryOutbox([Listener("k", recorder, "q", (1, 10), ordered=True)], clock=clock)
    emit(outbox, "k", "good", "bad", "later", "last")
    await outbox.drain()
    assert recorder.calls == ["good 1", "bad 1"]
    assert [message.body for message in outbox.held] == ["later", "last"]
    clock.advance(1)
    emit(outbox, "k", "even later")
    await outbox.drain()
    assert recorder.calls == ["good 1", "bad 1", "bad 2"]
    clock.advance(10)
    await outbox.drain()
    assert recorder.calls[3:] == ["bad 3", "later 1", "last 1", "even later 1"]
    assert (outbox.held, outbox.retrying) == ([], [])


async def test_a_dead_letter_lets_the_rest_of_an_ordered_queue_go_on() -> None:
    recorder = Recorder(2)
    outbox = MemoryOutbox([Listener("k", recorder, "q", (1,), ordered=True)])
    emit(outbox, "k", "bad", "later")
    await outbox.drain()
    assert recorder.calls == ["bad 1", "bad 2", "later 1"]
    assert [letter.message.body for letter in outbox.dead_letters] == ["bad"]


async def test_a_message_that_fails_holds_up_no_other_queue() -> None:
    ordered, free = Recorder(1), Recorder(1)
    outbox = MemoryOutbox(
        [Listener("k", ordered, "ordered", (1,), ordered=True), Listener("k", free, "free", (1,))]
    )
    emit(outbox, "k", "bad", "later")
    await outbox.drain()
    assert ordered.calls == ["bad 1", "bad 2", "later 1"]
    assert free.calls == ["bad 1", "later 1", "bad 2"]


def test_listeners_of_one_queue_that_are_called_differently_are_refused() -> None:
    for options in ({"exactly_once": True}, {"deduplicate": True}):
        with pytest.raises(ValueError, match="queue 'q' has different listeners"):
            MemoryOutbox([Listener("k", on_k, "q"), Listener("j", on_k, "q", **options)])  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match="once ordered and once not"):
        MemoryOutbox([Listener("k", on_k, "q"), Listener("j", on_k, "q", ordered=True)])
