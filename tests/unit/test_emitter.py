from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from outbox import Emitter, OutboxMessage, SyncEmitter
from outbox.testing import MemoryOutbox


def _generated() -> Iterator[OutboxMessage]:
    yield OutboxMessage("a", 1)
    yield OutboxMessage("a", 2, timer_id="t")


async def _awaited() -> AsyncIterator[OutboxMessage]:
    yield OutboxMessage("a", 1)


async def test_bulk_emit_takes_any_iterable() -> None:
    outbox = MemoryOutbox()
    async with outbox.session() as session, session.begin():
        ids = await Emitter().bulk_emit(session, _generated())
    assert [message.message_id for message in outbox.messages] == ids
    with outbox.sync_session() as blocking, blocking.begin():
        assert len(SyncEmitter().bulk_emit(blocking, map(OutboxMessage, "bc", [3, 4]))) == 2


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        (OutboxMessage("a", 1), "bulk_emit takes an iterable of OutboxMessage, got 'OutboxMessage'"),
        (_awaited(), "bulk_emit takes an iterable of OutboxMessage, got 'async_generator'"),
        ([OutboxMessage("a", 1), {"routing_key": "a"}], "message 1 of 2 must be an OutboxMessage, got dict"),
        ("ab", "message 0 of 2 must be an OutboxMessage, got str"),
    ],
    ids=["one message", "async generator", "dictionaries", "text"],
)
def test_bulk_emit_says_what_it_takes(messages: Any, says: str) -> None:
    with MemoryOutbox().sync_session() as session, pytest.raises(TypeError, match=says):
        SyncEmitter().bulk_emit(session, messages)


def test_an_error_of_the_applications_iterable_is_not_hidden() -> None:
    def broken() -> Iterator[OutboxMessage]:
        yield OutboxMessage("a", 1)
        raise TypeError("the application's own")

    with MemoryOutbox().sync_session() as session, pytest.raises(TypeError, match="^the application's own"):
        SyncEmitter().bulk_emit(session, broken())


def test_cancel_timer_takes_timers_longer_than_emit_does() -> None:
    with MemoryOutbox().sync_session() as session, session.begin():
        assert SyncEmitter().cancel_timer(session, "a", "x" * 2500) is False


def test_a_bulk_that_no_statement_can_hold_is_refused() -> None:
    message = OutboxMessage("a", b"x" * 2**24)
    with MemoryOutbox().sync_session() as session, session.begin():
        with pytest.raises(ValueError, match="17 messages have 285212672 bytes, more than one statement"):
            SyncEmitter().bulk_emit(session, [message] * 17)
        assert len(SyncEmitter().bulk_emit(session, [message] * 16)) == 16
