from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from outbox import Emitter, SyncEmitter
from outbox.drivers import Statement


@pytest.fixture
def sqlite() -> Iterator[Engine]:
    engine = create_engine("sqlite://")
    yield engine
    engine.dispose()


async def test_anything_else_is_a_type_error_that_names_the_supported_ones() -> None:
    with pytest.raises(TypeError) as caught:
        await Emitter().emit(object(), "a", 1)
    message = str(caught.value)
    assert message.startswith("cannot emit through builtins.object; supported are: ")
    for name in (
        "AsyncSession",
        "AsyncConnection",
        "Session",
        "asyncpg",
        "psycopg (3)",
        "psycopg2",
        "Django",
    ):
        assert name in message


async def test_an_engine_is_told_apart_from_its_session() -> None:
    engine = create_async_engine("postgresql+asyncpg://nowhere/none")
    with pytest.raises(TypeError, match="AsyncEngine .it has no transaction of its own"):
        await Emitter().emit(engine, "a", 1)


def test_an_async_session_needs_the_async_emitter() -> None:
    with pytest.raises(TypeError, match="AsyncSession has to be awaited: emit through it with Emitter"):
        SyncEmitter().emit(AsyncSession(), "a", 1)


def test_another_database_is_refused(sqlite: Engine) -> None:
    with (
        Session(sqlite) as session,
        pytest.raises(
            TypeError, match="the outbox table lives in Postgres; this SQLAlchemy session is on sqlite"
        ),
    ):
        SyncEmitter().emit(session, "a", 1)


def test_a_subclass_is_recognised(sqlite: Engine) -> None:
    class AuditedSession(Session):
        pass

    with AuditedSession(sqlite) as session, pytest.raises(TypeError, match="on sqlite"):
        SyncEmitter().emit(session, "a", 1)


def test_both_engine_and_url_is_an_error() -> None:
    with pytest.raises(ValueError, match="db_engine or db_engine_url, not both"):
        Emitter(db_engine=object(), db_engine_url="postgresql+asyncpg://nowhere/none")


@pytest.mark.parametrize("emitter", [Emitter, SyncEmitter])
def test_a_negative_default_expiration_is_said_at_once(emitter: Any) -> None:
    with pytest.raises(ValueError, match="expiration must not be negative"):
        emitter(expiration=-1)


def test_a_statement_is_spelled_for_both_kinds_of_driver() -> None:
    statement = Statement.of("one", "INSERT INTO {table} VALUES ($1::text, 5 % $2)", table='"a$1%"')
    assert statement.dollar == 'INSERT INTO "a$1%" VALUES ($1::text, 5 % $2)'
    assert statement.percent == 'INSERT INTO "a$1%%" VALUES (%s::text, 5 %% %s)'
