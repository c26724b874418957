"""`outbox.testing` as a user's own tests would use it: what is recorded, and when."""

import copy
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, fields
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import AsyncMock, Mock
from uuid import UUID

import pytest
from pydantic import BaseModel
from sqlalchemy import create_engine, insert, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from outbox import Emitter, OutboxMessage, SyncEmitter, get_tracking_ids, tracking
from outbox.drivers import Statement, recognise
from outbox.inserts import Inserts
from outbox.testing import Clock, MemoryOutbox, MemorySession, SyncMemorySession

emitter = Emitter()
sync_emitter = SyncEmitter()


class Base(DeclarativeBase): ...


class User(Base):
    __tablename__ = "users"
    name: Mapped[str] = mapped_column(primary_key=True)


class Created(BaseModel):
    id: int


@pytest.fixture
def outbox() -> MemoryOutbox:
    return MemoryOutbox()


@pytest.fixture
def sqlite() -> Iterator[Session]:
    engine = create_engine("sqlite://")
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        yield session
    engine.dispose()


def keys(outbox: MemoryOutbox) -> list[str]:
    return [message.routing_key for message in outbox.messages]


async def test_an_emit_is_recorded_on_commit(outbox: MemoryOutbox) -> None:
    async with outbox.session() as session:
        message_id = await emitter.emit(session, "user.created", Created(id=1), headers={"tenant": "a"})
        assert outbox.messages == []
        await session.commit()
    [message] = outbox.messages
    assert message.message_id == message_id
    assert (message.routing_key, message.body, message.raw) == ("user.created", {"id": 1}, b'{"id":1}')
    assert (message.content_type, message.headers) == ("application/json", {"tenant": "a"})
    assert message.tracking_ids == [str(message_id)]
    assert (message.ordering_key, message.timer_id, message.expiration) == (None, None, None)
    assert outbox.pending == [message]
    with pytest.raises(FrozenInstanceError):
        message.body = 2  # type: ignore[misc]


@pytest.mark.parametrize(
    ("body", "content_type", "expected"),
    [
        (b"\x00\xff", None, b"\x00\xff"),
        ("plain", "text/plain", b"plain"),
        (b"not json", "application/json", b"not json"),
        ([1, None], None, [1, None]),
        ({"a": 1}, "application/vnd.shop+json", {"a": 1}),
    ],
)
async def test_a_body_is_shown_as_json_or_as_bytes(
    outbox: MemoryOutbox, body: Any, content_type: str | None, expected: object
) -> None:
    async with outbox.session() as session, session.begin():
        await emitter.emit(session, "k", body, content_type=content_type)
    assert outbox.messages[0].body == expected


async def test_an_emit_is_dropped_on_rollback(outbox: MemoryOutbox) -> None:
    async with outbox.session() as session:
        await emitter.emit(session, "user.created", 1)
        await session.rollback()
        await session.commit()
    assert outbox.messages == []


async def test_leaving_a_session_without_a_commit_rolls_back(outbox: MemoryOutbox) -> None:
    async with outbox.session() as session:
        await emitter.emit(session, "user.created", 1)
    await session.commit()
    assert outbox.messages == []


@pytest.mark.parametrize("block", ["begin", "transaction"])
async def test_a_block_commits_at_its_end_and_rolls_back_on_an_exception(
    outbox: MemoryOutbox, block: str
) -> None:
    session = outbox.session()
    async with getattr(session, block)():
        await emitter.emit(session, "kept", 1)
        assert outbox.messages == []
    with pytest.raises(ZeroDivisionError):
        async with getattr(session, block)():
            await emitter.emit(session, "dropped", 1)
            raise ZeroDivisionError
    assert keys(outbox) == ["kept"]


@pytest.mark.parametrize("savepoint", ["begin_nested", "transaction"])
async def test_a_rolled_back_savepoint_drops_only_its_own_emits(outbox: MemoryOutbox, savepoint: str) -> None:
    session = outbox.session()
    async with session.begin():
        await emitter.emit(session, "before", 1)
        with pytest.raises(ZeroDivisionError):
            async with getattr(session, savepoint)():
                await emitter.emit(session, "dropped", 1)
                raise ZeroDivisionError
        async with getattr(session, savepoint)():
            await emitter.emit(session, "inside", 1)
        assert outbox.messages == []
    assert keys(outbox) == ["before", "inside"]


async def test_a_savepoint_can_be_ended_by_hand(outbox: MemoryOutbox) -> None:
    session = outbox.session()
    savepoint = await session.begin_nested()
    await emitter.emit(session, "dropped", 1)
    await savepoint.rollback()
    transaction = session.transaction()
    await transaction.start()
    await emitter.emit(session, "kept", 1)
    await transaction.commit()
    await transaction.rollback()
    assert keys(outbox) == ["kept"]


async def test_begin_within_a_transaction_is_refused_as_sqlalchemy_does(outbox: MemoryOutbox) -> None:
    session = outbox.session()
    async with session.begin():
        with pytest.raises(RuntimeError, match=r"use session\.begin_nested\(\)"):
            async with session.begin():
                pass
    await emitter.emit(session, "k", 1)
    with pytest.raises(RuntimeError, match="begun already, by an emit"):
        await session.begin()


def test_a_sync_session_does_the_same(outbox: MemoryOutbox) -> None:
    with outbox.sync_session() as session:
        with session.begin():
            message_id = sync_emitter.emit(session, "first", 1)
            with pytest.raises(ZeroDivisionError), session.begin_nested():
                sync_emitter.emit(session, "dropped", 1)
                raise ZeroDivisionError
            with pytest.raises(ZeroDivisionError), session.begin(nested=True):
                sync_emitter.emit(session, "dropped", 1)
                raise ZeroDivisionError
            with session.transaction():
                sync_emitter.emit(session, "second", 1)
            assert outbox.messages == []
        with pytest.raises(ZeroDivisionError), session.transaction():
            sync_emitter.emit(session, "dropped", 1)
            raise ZeroDivisionError
        sync_emitter.emit(session, "third", 1)
        session.commit()
        sync_emitter.emit(session, "dropped", 1)
        session.rollback()
        sync_emitter.emit(session, "dropped", 1)
    assert keys(outbox) == ["first", "second", "third"]
    assert outbox.messages[0].message_id == message_id


async def test_the_async_emitter_takes_a_sync_session_and_the_sync_one_refuses_an_async_session(
    outbox: MemoryOutbox,
) -> None:
    with outbox.sync_session() as session, session.begin():
        await emitter.emit(session, "k", 1)
    assert keys(outbox) == ["k"]
    with pytest.raises(TypeError, match="MemorySession has to be awaited"):
        sync_emitter.emit(outbox.session(), "k", 1)


async def test_two_sessions_do_not_see_each_others_emits(outbox: MemoryOutbox) -> None:
    one, other = outbox.session(), outbox.session()
    await emitter.emit(one, "one", 1)
    await emitter.emit(other, "other", 1)
    await other.commit()
    await one.rollback()
    assert keys(outbox) == ["other"]


@pytest.mark.parametrize(
    ("arguments", "error", "named"),
    [
        ({"routing_key": ""}, ValueError, "routing_key must not be empty"),
        ({"routing_key": "k" * 256}, ValueError, "more than the 255 of AMQP"),
        ({"body": object()}, TypeError, "not a JSON value"),
        ({"expiration": -1}, ValueError, "expiration must not be negative"),
        ({"replace": True}, ValueError, "give its timer_id"),
    ],
)
async def test_what_the_emitter_refuses_it_refuses_here_too(
    outbox: MemoryOutbox, arguments: dict[str, Any], error: type[Exception], named: str
) -> None:
    async with outbox.session() as session:
        with pytest.raises(error, match=named):
            await emitter.emit(session, **{"routing_key": "k", "body": 1, **arguments})
        await session.commit()
    assert outbox.messages == []


async def test_an_emitter_with_settings_of_its_own_is_used_unchanged(outbox: MemoryOutbox) -> None:
    strict = Emitter(table_name="shop.outbox", auto_create_table=True, expiration=30, max_body_size=8)
    async with outbox.session() as session, session.begin():
        await strict.emit(session, "k", "short")
        with pytest.raises(ValueError, match="more than max_body_size"):
            await strict.emit(session, "k", "too long")
    assert outbox.messages[0].expiration == timedelta(seconds=30)


async def test_many_messages_are_recorded_in_their_order(outbox: MemoryOutbox) -> None:
    async with outbox.session() as session, session.begin():
        ids = await emitter.bulk_emit(session, [OutboxMessage(f"k.{n}", n) for n in range(100)])
        assert await emitter.bulk_emit(session, []) == []
    assert [message.message_id for message in outbox.messages] == ids
    assert [message.body for message in outbox.messages] == list(range(100))


async def test_many_messages_have_all_that_single_ones_have() -> None:
    clock = Clock()
    outbox = MemoryOutbox(clock=clock)
    full = OutboxMessage(
        "k", 1, expiration=5, eta=timedelta(hours=1), headers={"a": [1]}, ordering_key="o", content_type="x/y"
    )
    async with outbox.session() as session, session.begin():
        await emitter.bulk_emit(session, [full, OutboxMessage("k", 2)])
    message, plain = outbox.messages
    assert (message.expiration, message.due) == (timedelta(seconds=5), clock.now + timedelta(hours=1))
    assert (message.headers, message.ordering_key, message.content_type) == ({"a": [1]}, "o", "x/y")
    assert (plain.expiration, plain.due, plain.headers, plain.ordering_key) == (None, clock.now, {}, None)


def test_the_statements_of_the_emitters_are_those_that_are_tested_here() -> None:
    known = {"one", "timer", "replacement", "many", "many_plain", "many_timers", "cancellation", "key_lock"}
    assert {field.name for field in fields(Inserts)} == known


def test_an_emitter_that_locks_ordering_keys_emits_here_too(outbox: MemoryOutbox) -> None:
    locking = SyncEmitter(lock_ordering_keys=True)
    with outbox.sync_session() as session, session.begin():
        locking.emit(session, "k", 1, ordering_key="a")
        locking.bulk_emit(session, [OutboxMessage("k", 2, ordering_key="b")])
    assert [message.body for message in outbox.messages] == [1, 2]


def test_many_timers_are_recorded_once_each(outbox: MemoryOutbox) -> None:
    with outbox.sync_session() as session, session.begin():
        sync_emitter.emit(session, "k", 0, timer_id="a")
        ids = sync_emitter.bulk_emit(
            session, [OutboxMessage("k", n, timer_id=timer) for n, timer in enumerate(["a", "b", "b", None])]
        )
    assert [message_id is None for message_id in ids] == [True, False, True, False]
    assert [(message.body, message.timer_id) for message in outbox.messages] == [
        (0, "a"), (1, "b"), (3, None),
    ]  # fmt: skip


async def test_tracking_ids_of_an_entrypoint_come_first(outbox: MemoryOutbox) -> None:
    async with outbox.session() as session, session.begin():
        with tracking() as history:
            message_id = await emitter.emit(session, "k", 1)
    assert outbox.messages[0].tracking_ids == [*history, str(message_id)]
    assert get_tracking_ids() == []


async def test_a_message_is_due_now_or_at_its_eta() -> None:
    clock = Clock(datetime(2030, 1, 1, 12, tzinfo=UTC))
    outbox = MemoryOutbox(clock=clock)
    async with outbox.session() as session, session.begin():
        await emitter.emit(session, "now", 1)
        await emitter.emit(session, "milliseconds", 1, eta=1500)
        await emitter.emit(session, "timedelta", 1, eta=timedelta(hours=1))
        await emitter.emit(session, "datetime", 1, eta=datetime(2031, 1, 1, tzinfo=UTC))
    assert [message.due for message in outbox.messages] == [
        clock.now,
        clock.now + timedelta(seconds=1.5),
        clock.now + timedelta(hours=1),
        datetime(2031, 1, 1, tzinfo=UTC),
    ]


async def test_without_a_clock_an_eta_counts_from_the_real_now(outbox: MemoryOutbox) -> None:
    before = datetime.now(UTC)
    async with outbox.session() as session, session.begin():
        await emitter.emit(session, "k", 1, eta=timedelta(minutes=5))
    assert before <= outbox.messages[0].due - timedelta(minutes=5) <= datetime.now(UTC)


async def test_a_session_around_a_mock_passes_everything_else_on(outbox: MemoryOutbox) -> None:
    mock = AsyncMock()
    mock.get.return_value = "jo"
    async with outbox.session(around=mock) as session:
        assert await session.get(User, 1) == "jo"
        async with session.begin_nested():
            await emitter.emit(session, "user.created", {"id": 1})
        mock.commit.assert_not_awaited()
        await session.commit()
    mock.begin_nested.assert_awaited_once_with()
    mock.commit.assert_awaited_once_with()
    mock.rollback.assert_not_awaited()
    mock.close.assert_awaited_once_with()
    assert keys(outbox) == ["user.created"]


async def test_an_async_session_can_be_around_an_object_that_is_not(outbox: MemoryOutbox) -> None:
    mock = Mock()
    session = outbox.session(around=mock)
    session.add("jo")
    async with session.begin():
        await emitter.emit(session, "user.created", {"id": 1})
    await session.rollback()
    assert [name for name, _, _ in mock.mock_calls] == ["add", "commit", "rollback"]
    assert keys(outbox) == ["user.created"]


def test_a_sync_session_around_an_async_object_says_which_one_to_use(outbox: MemoryOutbox) -> None:
    session = outbox.sync_session(around=AsyncMock())
    with pytest.raises(TypeError, match=r"AsyncMock\.commit\(\) has to be awaited: use outbox\.session"):
        session.commit()


def test_a_session_around_one_of_sqlalchemy_keeps_data_and_messages_together(
    outbox: MemoryOutbox, sqlite: Session
) -> None:
    session = outbox.sync_session(around=sqlite)
    with session.begin():
        session.add(User(name="jo"))
        sync_emitter.emit(session, "user.created", {"name": "jo"})
        with pytest.raises(ZeroDivisionError), session.begin_nested():
            session.add(User(name="dropped"))
            sync_emitter.emit(session, "user.created", {"name": "dropped"})
            raise ZeroDivisionError
    session.add(User(name="dropped"))
    sync_emitter.emit(session, "user.created", {"name": "dropped"})
    session.rollback()
    assert session.scalars(select(User.name)).all() == ["jo"]
    assert [message.body for message in outbox.messages] == [{"name": "jo"}]


def test_nothing_is_recorded_where_the_commit_of_the_data_fails(
    outbox: MemoryOutbox, sqlite: Session
) -> None:
    sqlite.add(User(name="jo"))
    sqlite.commit()
    session = outbox.sync_session(around=sqlite)
    with pytest.raises(IntegrityError), session.begin():
        session.execute(insert(User).values(name="jo"))
        sync_emitter.emit(session, "user.created", {"name": "jo"})
    sqlite.expunge_all()
    with pytest.raises(IntegrityError), session.begin():
        session.add(User(name="jo"))
        sync_emitter.emit(session, "user.created", {"name": "jo"})
    session.commit()
    assert outbox.messages == []


def test_a_session_around_nothing_says_what_to_give_it(outbox: MemoryOutbox) -> None:
    session = outbox.sync_session()
    assert not hasattr(session, "add")
    with pytest.raises(AttributeError, match=r"has no 'add'.*session\(around=mock\)"):
        session.add(1)
    assert isinstance(copy.copy(session), SyncMemorySession)


@pytest.mark.parametrize("session", [MemoryOutbox().session(), MemoryOutbox().sync_session()])
async def test_a_statement_that_no_emitter_sends_is_refused_by_name(
    session: MemorySession | SyncMemorySession,
) -> None:
    driver = recognise(session)
    for send in (driver.execute, driver.fetch):
        with pytest.raises(NotImplementedError, match="'vacuum' has no meaning in outbox.testing"):
            result: Any = send(session, Statement.of("vacuum", "VACUUM"), ())
            await result


def test_ids_are_those_that_emit_returned(outbox: MemoryOutbox) -> None:
    with outbox.sync_session() as session, session.begin():
        message_id = sync_emitter.emit(session, "k", 1)
    assert isinstance(message_id, UUID)
    assert [message.message_id for message in outbox.messages] == [message_id]


def test_importing_it_does_not_load_asyncio() -> None:
    code = "import sys, outbox.testing; print('asyncio' in sys.modules)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "False"
