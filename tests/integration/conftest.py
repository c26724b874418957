"""An outbox table, and sessions of every driver to emit through."""

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, TypeAlias

import asyncpg
import pytest

from outbox import schema
from tests.integration.doors import DOORS, Door
from tests.integration.lone_postgres import at, lone_postgres

OpenDoor: TypeAlias = Callable[..., Awaitable[Door]]


@pytest.fixture
async def database(postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection of the test's own, to look at what was committed."""
    connection = await asyncpg.connect(postgres_url)
    await connection.execute(schema.create_sql())
    await connection.execute("CREATE TABLE users (id integer PRIMARY KEY)")
    yield connection
    await connection.close()


@pytest.fixture
async def open_door(postgres_url: str) -> AsyncIterator[OpenDoor]:
    doors: list[Door] = []

    async def open_one(kind: type[Door], **emitter_options: Any) -> Door:
        door = kind(postgres_url, **emitter_options)
        await door.open()
        doors.append(door)
        return door

    yield open_one
    for door in doors:
        await door.close()


@pytest.fixture(params=DOORS, ids=lambda kind: kind.label)
def kind(request: pytest.FixtureRequest) -> type[Door]:
    kind: type[Door] = request.param
    return kind


@pytest.fixture
async def door(kind: type[Door], open_door: OpenDoor, database: asyncpg.Connection) -> Door:
    return await open_door(kind)


@pytest.fixture(scope="session")
def lone_server_url() -> Iterator[str]:
    """A Postgres in which no other test has a transaction."""
    with lone_postgres() as url:
        yield url


@pytest.fixture
async def lone_url(lone_server_url: str) -> AsyncIterator[str]:
    """An empty database of it."""
    name = f"test_{uuid.uuid4().hex}"
    connection = await asyncpg.connect(lone_server_url)
    await connection.execute(f"CREATE DATABASE {name}")
    yield at(lone_server_url, database=name)
    await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
    await connection.close()
