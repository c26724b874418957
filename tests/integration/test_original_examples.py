"""Code written for the original library's emitting side works as it is."""

import asyncio
import datetime
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from outbox import Emitter, OutboxMessage, tracking


class Base(DeclarativeBase):
    pass


class User(Base):
    __tablename__ = "users"
    id: Mapped[int] = mapped_column(primary_key=True)
    username: Mapped[str]


class UserCreated(BaseModel):
    id: int
    username: str


@pytest.fixture
async def db_engine(postgres_url: str) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(postgres_url.replace("postgresql", "postgresql+asyncpg", 1))
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    yield engine
    await engine.dispose()


@pytest.fixture
def emitter(db_engine: AsyncEngine) -> Emitter:
    return Emitter(db_engine=db_engine, auto_create_table=True)


async def committed(postgres_url: str) -> list[dict[str, Any]]:
    connection = await asyncpg.connect(postgres_url)
    rows = await connection.fetch("SELECT * FROM outbox_table ORDER BY id")
    await connection.close()
    return [
        {**row, "body": json.loads(row["body"]), "tracking_ids": json.loads(row["tracking_ids"])}
        for row in rows
    ]


async def test_emit_inside_a_transaction_with_the_data(
    db_engine: AsyncEngine, emitter: Emitter, postgres_url: str
) -> None:
    async with AsyncSession(db_engine) as session, session.begin():
        session.add(User(id=123, username="johndoe"))
        await emitter.emit(session, "user.created", {"id": 123, "username": "johndoe"})
    async with AsyncSession(db_engine) as session:
        assert await session.get(User, 123) is not None
    assert [row["body"] for row in await committed(postgres_url)] == [{"id": 123, "username": "johndoe"}]


async def test_a_failing_transaction_keeps_neither(
    db_engine: AsyncEngine, emitter: Emitter, postgres_url: str
) -> None:
    async with AsyncSession(db_engine) as session:
        await emitter.emit(session, "user.created", 1)
        await session.commit()
    with pytest.raises(ZeroDivisionError):
        async with AsyncSession(db_engine) as session, session.begin():
            session.add(User(id=1, username="a"))
            await emitter.emit(session, "user.created", 2)
            raise ZeroDivisionError
    async with AsyncSession(db_engine) as session:
        assert await session.get(User, 1) is None
    assert [row["body"] for row in await committed(postgres_url)] == [1]


async def test_an_emitter_by_url_and_an_explicit_commit(db_engine: AsyncEngine, postgres_url: str) -> None:
    emitter = Emitter(db_engine_url=str(db_engine.url), table_name="outbox_table", auto_create_table=True)
    async with AsyncSession(db_engine) as session:
        await emitter.emit(session, "user.created", {"id": 123}, expiration=60)
        await session.commit()
    [row] = await committed(postgres_url)
    assert row["expiration"] == datetime.timedelta(seconds=60)


async def test_bulk_emit(db_engine: AsyncEngine, emitter: Emitter, postgres_url: str) -> None:
    async with AsyncSession(db_engine) as session, session.begin():
        messages = [
            OutboxMessage(routing_key="user.created", body={"id": 1, "username": "alice"}),
            OutboxMessage(routing_key="user.created", body={"id": 2, "username": "bob"}),
            OutboxMessage(routing_key="order.placed", body={"order_id": 456}),
        ]
        await emitter.bulk_emit(session, messages)
    rows = await committed(postgres_url)
    assert [row["routing_key"] for row in rows] == ["user.created", "user.created", "order.placed"]


async def test_delayed_execution_by_local_time(
    db_engine: AsyncEngine, emitter: Emitter, postgres_url: str
) -> None:
    eta = datetime.datetime.now() + datetime.timedelta(minutes=5)  # noqa: DTZ005 - local time is the promise
    async with AsyncSession(db_engine) as session:
        await emitter.emit(session, "user.created", {"id": 123}, eta=eta)
        await session.commit()
    [row] = await committed(postgres_url)
    assert row["send_after"] == eta.astimezone(datetime.UTC)


async def test_pydantic_models_are_serialised(
    db_engine: AsyncEngine, emitter: Emitter, postgres_url: str
) -> None:
    async with AsyncSession(db_engine) as session:
        await emitter.emit(session, "user.created", UserCreated(id=123, username="johndoe"))
        await session.commit()
    [row] = await committed(postgres_url)
    assert row["body"] == {"id": 123, "username": "johndoe"}


async def test_tracking_wraps_an_entrypoint(
    db_engine: AsyncEngine, emitter: Emitter, postgres_url: str
) -> None:
    async def entrypoint() -> None:
        async with AsyncSession(db_engine) as session:
            await emitter.emit(session, "user.created", {"id": 123})
            await session.commit()

    await entrypoint()
    with tracking():
        await entrypoint()
    alone, tracked = [row["tracking_ids"] for row in await committed(postgres_url)]
    assert (len(alone), len(tracked)) == (1, 2)
    assert len({*alone, *tracked}) == 3


async def test_concurrent_first_emits(db_engine: AsyncEngine, emitter: Emitter, postgres_url: str) -> None:
    async def one(number: int) -> None:
        async with AsyncSession(db_engine) as session, session.begin():
            await emitter.emit(session, "user.created", number)

    await asyncio.gather(*(one(number) for number in range(10)))
    assert sorted(row["body"] for row in await committed(postgres_url)) == list(range(10))


async def test_emits_are_logged_as_outbox_at_info(
    db_engine: AsyncEngine, emitter: Emitter, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="outbox"):
        async with AsyncSession(db_engine) as session, session.begin():
            message_id = await emitter.emit(session, "user.created", {"password": "secret"})
    assert f"emitted user.created as {message_id}" in caplog.messages
    assert "secret" not in caplog.text
