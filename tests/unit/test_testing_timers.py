"""Timers, etas and expirations of `outbox.testing`: at once, or by a clock that the test holds."""

from datetime import UTC, datetime, timedelta

import pytest

from outbox import Emitter, Listener, SyncEmitter, listen
from outbox.testing import Clock, MemoryOutbox

emitter = Emitter()
sync_emitter = SyncEmitter()
HOUR = timedelta(hours=1)


class Recorder:
    """A listener to everything that notes what it was called with."""

    def __init__(self) -> None:
        self.bodies: list[object] = []

    def note(self, body: object) -> None:
        self.bodies.append(body)

    def outbox(self, clock: Clock | None = None) -> MemoryOutbox:
        return MemoryOutbox([Listener("#", self.note)], clock=clock)


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


def emit(outbox: MemoryOutbox, body: object, **options: object) -> object:
    with outbox.sync_session() as session, session.begin():
        return sync_emitter.emit(session, "remind", body, **options)  # type: ignore[arg-type]


def bodies(outbox: MemoryOutbox) -> list[object]:
    return [message.body for message in outbox.messages]


async def test_without_a_clock_timers_fire_at_once_in_the_order_of_their_time(recorder: Recorder) -> None:
    outbox = recorder.outbox()
    emit(outbox, "in two hours", eta=2 * HOUR)
    emit(outbox, "in an hour", eta=HOUR)
    emit(outbox, "now")
    emit(outbox, "in a year", eta=datetime.now(UTC) + timedelta(days=365))
    emit(outbox, "long ago", eta=datetime(2001, 1, 1, tzinfo=UTC))
    await outbox.drain()
    assert recorder.bodies == ["long ago", "now", "in an hour", "in two hours", "in a year"]


async def test_by_the_clock_a_timer_stays_until_it_is_due(recorder: Recorder) -> None:
    clock = Clock()
    outbox = recorder.outbox(clock)
    emit(outbox, "now")
    emit(outbox, "later", eta=HOUR)
    await outbox.drain()
    assert recorder.bodies == ["now"]
    assert [message.body for message in outbox.pending] == ["later"]
    clock.advance(3599)
    await outbox.drain()
    assert recorder.bodies == ["now"]
    clock.advance(1)
    await outbox.drain()
    assert recorder.bodies == ["now", "later"]
    assert outbox.pending == []
    assert bodies(outbox) == ["now", "later"]


async def test_without_a_clock_what_a_timer_leads_to_comes_after_the_timer() -> None:
    order: list[object] = []

    @listen("remind")
    async def remind(body: str, attempt_count: int) -> None:
        order.append(body)
        if body == "in an hour" and attempt_count == 1:
            async with outbox.session() as session, session.begin():
                await emitter.emit(session, "remind", "an hour after that", eta=HOUR)
            raise ConnectionError

    outbox = MemoryOutbox([remind], retry_delays=(600,))
    emit(outbox, "in 90 minutes", eta=1.5 * HOUR)
    emit(outbox, "in an hour", eta=HOUR)
    await outbox.drain()
    assert order == ["in an hour", "in an hour", "in 90 minutes", "an hour after that"]


async def test_a_timer_that_sets_itself_again_fires_once_for_each_step_of_the_clock() -> None:
    @listen("tick")
    async def tick(body: object) -> None:
        async with outbox.session() as session, session.begin():
            assert await emitter.emit(session, "tick", 1, eta=HOUR, timer_id="tick") is not None

    clock = Clock()
    outbox = MemoryOutbox([tick], clock=clock)
    with outbox.sync_session() as session, session.begin():
        sync_emitter.emit(session, "tick", 1, timer_id="tick")
    for hours in range(1, 4):
        await outbox.drain()
        assert len(outbox.handled) == hours
        clock.advance(HOUR)


async def test_a_pending_timer_is_not_set_twice(recorder: Recorder) -> None:
    outbox = recorder.outbox(Clock())
    assert emit(outbox, "first", eta=HOUR, timer_id="a") is not None
    assert emit(outbox, "second", eta=HOUR, timer_id="a") is None
    assert emit(outbox, "other", eta=HOUR, timer_id="b") is not None
    assert bodies(outbox) == ["first", "other"]


async def test_a_timer_that_fired_can_be_set_again(recorder: Recorder) -> None:
    outbox = recorder.outbox()
    emit(outbox, "first", timer_id="a")
    await outbox.drain()
    assert emit(outbox, "second", timer_id="a") is not None
    await outbox.drain()
    assert recorder.bodies == ["first", "second"]


async def test_a_timer_is_moved_by_replace(recorder: Recorder) -> None:
    clock = Clock()
    outbox = recorder.outbox(clock)
    emit(outbox, "first", eta=HOUR, timer_id="a")
    assert emit(outbox, "second", eta=2 * HOUR, timer_id="a", replace=True) is not None
    assert emit(outbox, "third", eta=HOUR, timer_id="a") is None
    assert bodies(outbox) == ["second"]
    clock.advance(HOUR)
    await outbox.drain()
    assert recorder.bodies == []
    clock.advance(HOUR)
    await outbox.drain()
    assert recorder.bodies == ["second"]


async def test_a_cancelled_timer_never_fires(recorder: Recorder) -> None:
    outbox = recorder.outbox()
    emit(outbox, "first", timer_id="a")
    async with outbox.session() as session:
        assert await emitter.cancel_timer(session, "remind", "a")
        assert not await emitter.cancel_timer(session, "remind", "a")
        assert not await emitter.cancel_timer(session, "other", "a")
        assert bodies(outbox) == ["first"]
        await session.commit()
    await outbox.drain()
    assert (recorder.bodies, outbox.messages, outbox.pending) == ([], [], [])


async def test_a_transaction_sees_its_own_timers(recorder: Recorder) -> None:
    outbox = recorder.outbox()
    async with outbox.session() as session, session.begin():
        assert await emitter.emit(session, "remind", 1, timer_id="a") is not None
        assert await emitter.emit(session, "remind", 2, timer_id="a") is None
        assert await emitter.emit(session, "remind", 3, timer_id="a", replace=True) is not None
        assert await emitter.cancel_timer(session, "remind", "a")
        assert await emitter.emit(session, "remind", 4, timer_id="a") is not None
    assert bodies(outbox) == [4]


async def test_a_rolled_back_savepoint_gives_its_timer_back(recorder: Recorder) -> None:
    outbox = recorder.outbox()
    emit(outbox, "first", timer_id="a")
    async with outbox.session() as session, session.begin():
        savepoint = await session.begin_nested()
        assert await emitter.cancel_timer(session, "remind", "a")
        await savepoint.rollback()
        assert await emitter.emit(session, "remind", "second", timer_id="a") is None
    assert bodies(outbox) == ["first"]


async def test_of_two_sessions_that_set_a_timer_the_first_to_commit_wins(recorder: Recorder) -> None:
    outbox = recorder.outbox()
    one, other, third = outbox.session(), outbox.session(), outbox.session()
    await emitter.emit(one, "remind", "rolled back", timer_id="a")
    await emitter.emit(other, "remind", "first to commit", timer_id="a")
    await emitter.emit(third, "remind", "last to commit", timer_id="a")
    await one.rollback()
    await other.commit()
    await third.commit()
    assert bodies(outbox) == ["first to commit"]
    await emitter.emit(third, "remind", "moved", timer_id="a", replace=True)
    await third.commit()
    assert bodies(outbox) == ["moved"]


@pytest.mark.parametrize(("waited", "delivered"), [(0, True), (9.999, True), (10, False), (60, False)])
async def test_a_message_that_waited_too_long_by_the_clock_is_expired(
    recorder: Recorder, waited: float, delivered: bool
) -> None:
    clock = Clock()
    outbox = recorder.outbox(clock)
    emit(outbox, "short-lived", expiration=10)
    clock.advance(waited)
    await outbox.drain()
    assert recorder.bodies == (["short-lived"] if delivered else [])
    assert outbox.expired == ([] if delivered else outbox.messages)
    assert outbox.pending == []


async def test_an_expiration_counts_from_when_a_message_could_be_delivered(recorder: Recorder) -> None:
    clock = Clock()
    outbox = recorder.outbox(clock)
    emit(outbox, "timer", eta=HOUR, expiration=10)
    emit(outbox, "long ago", eta=clock.now - HOUR, expiration=10)
    emit(outbox, "at once", expiration=0.001)
    await outbox.drain()
    clock.advance(HOUR)
    await outbox.drain()
    assert recorder.bodies == ["long ago", "at once", "timer"]
    assert outbox.expired == []


async def test_without_a_clock_nothing_expires(recorder: Recorder) -> None:
    outbox = recorder.outbox()
    emit(outbox, "at once", expiration=0.001)
    await outbox.drain()
    assert recorder.bodies == ["at once"]


@pytest.mark.parametrize(("expiration", "dead"), [(1.0, [1]), (1.1, []), (None, [])])
async def test_by_the_clock_no_retry_comes_after_the_expiration(
    expiration: float | None, dead: list[int]
) -> None:
    @listen("remind")
    def flaky(body: object, attempt_count: int) -> None:
        if attempt_count == 1:
            raise ConnectionError

    clock = Clock()
    outbox = MemoryOutbox([flaky], clock=clock)
    emit(outbox, "late or not", expiration=expiration)
    await outbox.drain()
    assert [letter.attempts for letter in outbox.dead_letters] == dead
    clock.advance(1)
    await outbox.drain()
    assert [handled.attempts for handled in outbox.handled] == ([] if dead else [2])


def test_a_clock_stands_still_until_it_is_moved_forward() -> None:
    clock = Clock()
    start = clock.now
    assert start.tzinfo is not None
    assert clock.advance(1.5) == start + timedelta(seconds=1.5) == clock.now
    assert clock.advance(HOUR) == start + HOUR + timedelta(seconds=1.5)
    with pytest.raises(ValueError, match="time does not go back"):
        clock.advance(-1)


def test_a_clock_starts_at_a_time_with_a_timezone() -> None:
    start = datetime(2030, 1, 1, tzinfo=UTC)
    assert Clock(start).now == start
    with pytest.raises(ValueError, match="has no timezone"):
        Clock(datetime(2030, 1, 1))  # noqa: DTZ001
