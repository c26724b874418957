"""Connections inside a proxy that claims their class, as ddtrace and wrapt put around them."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import asyncpg
import psycopg
import psycopg2
import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from outbox import Emitter, SyncEmitter, schema


class Proxy:
    """What `wrapt.ObjectProxy` does: every attribute, the class included, is that of the object inside."""

    def __init__(self, wrapped: Any) -> None:
        object.__setattr__(self, "__wrapped__", wrapped)

    @property
    def __class__(self) -> Any:
        return type(self.__wrapped__)

    @__class__.setter
    def __class__(self, kind: Any) -> None:
        raise AttributeError(kind)

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "__wrapped__"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__wrapped__, name, value)


@contextlib.contextmanager
def sqlalchemy_session(url: str) -> Iterator[Session]:
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with Session(engine) as session:
        yield session
    engine.dispose()


CONNECT: dict[str, Callable[[str], Any]] = {
    "psycopg": psycopg.connect,
    "psycopg2": lambda url: contextlib.closing(psycopg2.connect(url)),
    "sqlalchemy": sqlalchemy_session,
}


@pytest.mark.parametrize("driver", ["psycopg", "psycopg cursor", "psycopg2", "psycopg2 cursor", "sqlalchemy"])
def test_a_proxied_connection_emits_and_cancels(postgres_url: str, driver: str) -> None:
    name, _, cursor = driver.partition(" ")
    emitter = SyncEmitter()
    with CONNECT[name](postgres_url) as connection:
        session = Proxy(connection.cursor() if cursor else connection)
        schema.create_sync(session)
        assert emitter.emit(session, "k", {}, timer_id="t") is not None
        assert emitter.emit(session, "k", {}, timer_id="t") is None
        assert emitter.cancel_timer(session, "k", "t")
        assert schema.check_sync(session) == []


async def test_a_proxied_asyncpg_connection_emits(postgres_url: str) -> None:
    connection = await asyncpg.connect(postgres_url)
    await schema.create(Proxy(connection))
    async with connection.transaction():
        assert await Emitter().emit(Proxy(connection), "k", {}) is not None
    assert await connection.fetchval("SELECT count(*) FROM outbox_table") == 1
    await connection.close()


async def test_a_proxy_of_anything_else_is_refused() -> None:
    with pytest.raises(TypeError, match="cannot emit through tests.integration.test_emit_proxies.Proxy"):
        await Emitter().emit(Proxy(object()), "k", {})
