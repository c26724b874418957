"""Emits through sessions that stream, pipeline, route to several databases, or translate schemas."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack
from typing import Any
from uuid import UUID

import asyncpg
import psycopg
import pytest
from sqlalchemy import Delete, Engine, Update, create_engine
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker

from outbox import Emitter, OutboxMessage, SyncEmitter
from tests.integration.emitted import bodies_of

READ_ONLY = "-c default_transaction_read_only=on"


class Base(DeclarativeBase):
    pass


class User(Base):
    __tablename__ = "users"
    id: Mapped[int] = mapped_column(primary_key=True)


class Other(Base):
    __tablename__ = "others"
    id: Mapped[int] = mapped_column(primary_key=True)


@pytest.fixture
def leader(postgres_url: str, database: asyncpg.Connection) -> Iterator[Engine]:
    engine = create_engine(postgres_url.replace("postgresql", "postgresql+psycopg", 1))
    yield engine
    engine.dispose()


@pytest.fixture
def follower(postgres_url: str) -> Iterator[Engine]:
    engine = create_engine(
        postgres_url.replace("postgresql", "postgresql+psycopg", 1), connect_args={"options": READ_ONLY}
    )
    yield engine
    engine.dispose()


@pytest.fixture(params=["asyncpg", "psycopg"])
async def async_engine(
    request: pytest.FixtureRequest, postgres_url: str, database: asyncpg.Connection
) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(postgres_url.replace("postgresql", f"postgresql+{request.param}", 1))
    yield engine
    await engine.dispose()


def emit_everything(session: Any) -> None:
    emitter = SyncEmitter()
    assert isinstance(emitter.emit(session, "a", 1), UUID)
    assert isinstance(emitter.emit(session, "a", 2, timer_id="t"), UUID)
    assert emitter.emit(session, "a", 3, timer_id="t") is None
    assert isinstance(emitter.emit(session, "a", 4, timer_id="t", replace=True), UUID)
    ids = emitter.bulk_emit(session, [OutboxMessage("a", 5), OutboxMessage("a", 6, timer_id="t")])
    assert [message_id is None for message_id in ids] == [False, True]
    assert len(emitter.bulk_emit(session, [OutboxMessage("a", 7)])) == 1
    assert emitter.cancel_timer(session, "a", "t") is True
    assert emitter.cancel_timer(session, "a", "t") is False


async def emit_everything_async(session: Any) -> None:
    emitter = Emitter()
    assert isinstance(await emitter.emit(session, "a", 1), UUID)
    assert isinstance(await emitter.emit(session, "a", 2, timer_id="t"), UUID)
    assert await emitter.emit(session, "a", 3, timer_id="t") is None
    assert isinstance(await emitter.emit(session, "a", 4, timer_id="t", replace=True), UUID)
    ids = await emitter.bulk_emit(session, [OutboxMessage("a", 5), OutboxMessage("a", 6, timer_id="t")])
    assert [message_id is None for message_id in ids] == [False, True]
    assert len(await emitter.bulk_emit(session, [OutboxMessage("a", 7)])) == 1
    assert await emitter.cancel_timer(session, "a", "t") is True
    assert await emitter.cancel_timer(session, "a", "t") is False


EVERYTHING = [1, 5, 7]

STREAMING = pytest.mark.parametrize("options", [{"stream_results": True}, {"yield_per": 10}], ids=str)


@STREAMING
@pytest.mark.parametrize("dialect", ["psycopg", "psycopg2"])
async def test_streaming_options_of_a_session_do_not_reach_emits(
    postgres_url: str, database: asyncpg.Connection, dialect: str, options: dict[str, Any]
) -> None:
    url = postgres_url.replace("postgresql", f"postgresql+{dialect}", 1)
    engine = create_engine(url, execution_options=options)
    with Session(engine) as session, session.begin():
        emit_everything(session)
    with engine.connect() as connection, connection.begin():
        SyncEmitter().emit(connection, "a", 8, timer_id="t")
    engine.dispose()
    assert await bodies_of(database) == [*EVERYTHING, 8]


@STREAMING
async def test_streaming_options_of_an_async_session_do_not_reach_emits(
    async_engine: AsyncEngine, database: asyncpg.Connection, options: dict[str, Any]
) -> None:
    async with AsyncSession(async_engine.execution_options(**options)) as session, session.begin():
        await emit_everything_async(session)
    assert await bodies_of(database) == EVERYTHING


async def test_emits_in_a_psycopg_pipeline_tell_what_happened(
    postgres_url: str, database: asyncpg.Connection
) -> None:
    with psycopg.connect(postgres_url) as connection, connection.pipeline():
        emit_everything(connection)
        SyncEmitter(lock_ordering_keys=True).emit(connection.cursor(), "a", 8, ordering_key="k")
    assert await bodies_of(database) == [*EVERYTHING, 8]


async def test_emits_in_an_async_psycopg_pipeline_tell_what_happened(
    postgres_url: str, database: asyncpg.Connection
) -> None:
    async with AsyncExitStack() as stack:
        connection = await stack.enter_async_context(await psycopg.AsyncConnection.connect(postgres_url))
        await stack.enter_async_context(connection.pipeline())
        await emit_everything_async(connection)
        await Emitter(lock_ordering_keys=True).emit(connection.cursor(), "a", 8, ordering_key="k")
    assert await bodies_of(database) == [*EVERYTHING, 8]


def routing_session(leader: Engine, follower: Engine) -> type[Session]:
    class RoutingSession(Session):
        """The recipe of SQLAlchemy's documentation: "Custom Vertical Partitioning"."""

        def get_bind(self, mapper: Any = None, clause: Any = None, **_: Any) -> Engine:
            if self._flushing or isinstance(clause, Update | Delete):
                return leader
            return follower

    return RoutingSession


async def test_a_routing_session_emits_to_its_leader(
    leader: Engine, follower: Engine, database: asyncpg.Connection
) -> None:
    kind = routing_session(leader, follower)
    with kind() as session, session.begin():
        session.add(User(id=1))
        session.flush()
        emit_everything(session)
        assert await bodies_of(database) == []
    assert await bodies_of(database) == EVERYTHING
    scoped = scoped_session(sessionmaker(class_=kind))
    with ExitStack() as stack:
        stack.callback(scoped.remove)
        SyncEmitter().emit(scoped, "a", 8)
        scoped.commit()
    assert await bodies_of(database) == [*EVERYTHING, 8]


async def test_an_async_routing_session_emits_to_its_leader(
    async_engine: AsyncEngine, follower: Engine, database: asyncpg.Connection
) -> None:
    kind = routing_session(async_engine.sync_engine, follower)
    async with AsyncSession(sync_session_class=kind) as session, session.begin():
        session.add(User(id=1))
        await session.flush()
        await emit_everything_async(session)
        assert await bodies_of(database) == []
    assert await bodies_of(database) == EVERYTHING


async def test_a_session_with_one_bind_for_its_models_emits_there(
    leader: Engine, database: asyncpg.Connection
) -> None:
    with Session(binds={User: leader, Base: leader}) as session, session.begin():
        session.add(User(id=1))
        session.flush()
        emit_everything(session)
        assert await bodies_of(database) == []
    assert await bodies_of(database) == EVERYTHING
    scoped = scoped_session(sessionmaker(binds={Base: leader}))
    with ExitStack() as stack:
        stack.callback(scoped.remove)
        SyncEmitter().emit(scoped, "a", 8)
        scoped.commit()
    assert await bodies_of(database) == [*EVERYTHING, 8]


async def test_an_async_session_with_one_bind_for_its_models_emits_there(
    async_engine: AsyncEngine, database: asyncpg.Connection
) -> None:
    async with AsyncSession(binds={User: async_engine}) as session, session.begin():
        session.add(User(id=1))
        await session.flush()
        await emit_everything_async(session)
        assert await bodies_of(database) == []
    assert await bodies_of(database) == EVERYTHING


async def test_a_session_with_several_binds_and_no_default_says_how_to_emit(
    leader: Engine, follower: Engine, database: asyncpg.Connection
) -> None:
    with Session(binds={User: leader, Other: follower}) as session, session.begin():
        session.add(User(id=1))
        with pytest.raises(ValueError, match=r'session.connection\(bind_arguments={"mapper": Model}\)'):
            SyncEmitter().emit(session, "a", 1)
        SyncEmitter().emit(session.connection(bind_arguments={"mapper": User}), "a", 2)
        assert await bodies_of(database) == []
    assert await bodies_of(database) == [2]
    assert await database.fetchval("SELECT count(*) FROM users") == 1


async def test_a_session_with_binds_and_a_default_emits_to_the_default(
    leader: Engine, follower: Engine, database: asyncpg.Connection
) -> None:
    with Session(leader, binds={User: follower}) as session, session.begin():
        emit_everything(session)
    assert await bodies_of(database) == EVERYTHING


async def test_no_table_is_created_outside_of_a_translated_schema(
    leader: Engine, database: asyncpg.Connection
) -> None:
    await database.execute("DROP TABLE outbox_table; CREATE SCHEMA tenant")
    translating = leader.execution_options(schema_translate_map={None: "tenant"})
    with Session(translating) as session, session.begin():
        with pytest.raises(ValueError, match=r'Emitter\(table_name="tenant.outbox_table"\)'):
            SyncEmitter(auto_create_table=True).emit(session, "a", 1)
        SyncEmitter(auto_create_table=True, table_name="tenant.outbox_table").emit(session, "a", 2)
    assert await database.fetch("SELECT schemaname FROM pg_tables WHERE tablename = 'outbox_table'") == [
        ("tenant",)
    ]


async def test_a_table_outside_of_a_translated_schema_is_emitted_to(
    leader: Engine, database: asyncpg.Connection
) -> None:
    translating = leader.execution_options(schema_translate_map={None: "tenant"})
    with Session(translating) as session, session.begin():
        SyncEmitter(auto_create_table=True).emit(session, "a", 1)
    assert await bodies_of(database) == [1]
