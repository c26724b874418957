"""Tables made by `create_sql`: under any name, by many at once, and removed without a trace."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import asyncpg
import psycopg
import psycopg2
import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from outbox import schema
from outbox.table import INDEXES, TableName
from outbox_worker import inbox
from tests.integration.sleeping import asleep

NAMES = [
    "outbox_table",
    "shop.outbox_table",
    "Shop.OutboxTable",
    "my table",
    '"dotted.name"',
    'we"ird',
    "it's",
    "back\\slash",
    "$outbox$",
    "$notify$",
    "$1",
    "100%s",
    "a :b",
    "line\nbreak",
    "été",
    "user",
    "x" * 63,
    'x"; DROP TABLE victim; --',
    "x'; DROP TABLE victim; --",
    "x$outbox$; DROP TABLE victim; --",
    "x$notify$; DROP TABLE victim; --",
    'shop.x"); DROP TABLE victim; --',
]


@pytest.fixture
async def connection(postgres_url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(postgres_url)
    yield connection
    await connection.close()


async def objects(connection: Any) -> set[str]:
    """Everything a user may have made in this database, by name."""
    rows = await connection.fetch(
        """
        SELECT relname AS name FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace
        WHERE nspname !~ '^pg_|^information_schema$'
        UNION ALL
        SELECT proname FROM pg_proc JOIN pg_namespace n ON n.oid = pronamespace
        WHERE nspname !~ '^pg_|^information_schema$'
        """
    )
    return {row["name"] for row in rows}


async def test_a_created_table_has_no_problems(connection: Any) -> None:
    await schema.create(connection)
    assert await schema.check(connection) == []


async def test_a_minimal_insert_is_a_pending_message_due_now(connection: Any) -> None:
    await schema.create(connection)
    row = await connection.fetchrow(
        "INSERT INTO outbox_table (routing_key, body) VALUES ('a', '')"
        " RETURNING *, send_after <= now() AS due"
    )
    assert row["due"]
    assert (row["id"], row["attempts"], row["tracking_ids"]) == (1, 0, "[]")
    assert row["sent_at"] is row["parked_at"] is row["headers"] is None


@pytest.mark.parametrize("name", NAMES)
async def test_any_name_works_and_injects_nothing(connection: Any, name: str) -> None:
    await connection.execute('CREATE TABLE victim (); CREATE SCHEMA shop; CREATE SCHEMA "Shop"')
    before = await objects(connection)
    table = TableName.parse(name)
    for _ in range(2):
        await schema.create(connection, name)
        await schema.upgrade(connection, name)
    assert await schema.check(connection, name) == []
    await connection.execute(f"INSERT INTO {table.sql} (routing_key, body) VALUES ('a', '')")
    made = await objects(connection) - before
    assert {table.name, table.derived("notify"), *(table.derived(i.suffix) for i in INDEXES)} <= made
    await connection.execute(schema.drop_sql(name))
    assert await objects(connection) == before


@pytest.mark.parametrize("channel", ["Channel", "it's", "back\\slash", "$notify$ $outbox$", "100%s", "a :b"])
@pytest.mark.parametrize("conforming", ["on", "off"])
async def test_any_channel_works(connection: Any, postgres_url: str, channel: str, conforming: str) -> None:
    await connection.execute(
        f"SET standard_conforming_strings = {conforming}; SET escape_string_warning = off"
    )
    heard: asyncio.Queue[str] = asyncio.Queue()

    def hear(_connection: Any, _pid: int, _channel: str, payload: str) -> None:
        heard.put_nowait(payload)

    await connection.add_listener(channel, hear)
    await schema.create(connection, channel=channel)
    assert await schema.check(connection, channel=channel) == []
    async with asleep(postgres_url):
        await connection.execute("INSERT INTO outbox_table (routing_key, body) VALUES ('a', '')")
    assert await asyncio.wait_for(heard.get(), 10) == "public.outbox_table"
    await connection.remove_listener(channel, hear)


async def test_twenty_sessions_create_the_same_table_at_once(postgres_url: str) -> None:
    connections = await asyncio.gather(*(asyncpg.connect(postgres_url) for _ in range(20)))
    try:
        await asyncio.gather(*(schema.create(connection) for connection in connections))
        assert await schema.check(connections[0]) == []
    finally:
        await asyncio.gather(*(connection.close() for connection in connections))


async def test_creating_a_complete_table_waits_for_no_writer(postgres_url: str, connection: Any) -> None:
    await schema.create(connection)
    writer = await asyncpg.connect(postgres_url)
    try:
        async with writer.transaction():
            await writer.execute("INSERT INTO outbox_table (routing_key, body) VALUES ('a', '')")
            await connection.execute("SET lock_timeout = '1s'")
            await schema.create(connection)
    finally:
        await writer.close()


async def test_creating_holds_the_advisory_lock_of_the_table(postgres_url: str, connection: Any) -> None:
    async with connection.transaction():
        await schema.create(connection)
        key = await connection.fetchval(
            "SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks"
            " WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
        )
    assert key == schema.advisory_key("outbox_table")


async def test_two_tables_live_in_one_database(connection: Any) -> None:
    await connection.execute("CREATE SCHEMA shop")
    names = ["outbox_table", "other", "shop.outbox_table"]
    for name in names:
        await schema.create(connection, name)
    await connection.execute(schema.drop_sql("other"))
    assert await schema.check(connection, "outbox_table") == []
    assert await schema.check(connection, "shop.outbox_table") == []
    assert [problem.kind for problem in await schema.check(connection, "other")] == ["missing_table"]


async def test_each_schema_of_the_search_path_gets_a_table_of_its_own(connection: Any) -> None:
    await schema.create(connection)
    await connection.execute("CREATE SCHEMA tenant; SET search_path = tenant, public")
    await schema.create(connection)
    assert await schema.check(connection, "tenant.outbox_table") == []
    functions = await connection.fetch(
        "SELECT pronamespace::regnamespace::text AS schema FROM pg_proc WHERE proname = 'outbox_table_notify'"
    )
    assert {row["schema"] for row in functions} == {"public", "tenant"}


async def test_a_missing_schema_is_the_users_error(connection: Any) -> None:
    with pytest.raises(asyncpg.InvalidSchemaNameError, match='schema "nowhere" does not exist'):
        await schema.create(connection, "nowhere.outbox_table")
    await connection.execute(schema.drop_sql("nowhere.outbox_table"))


async def test_creating_over_an_older_table_says_to_upgrade_it(connection: Any) -> None:
    await connection.execute("CREATE TABLE outbox_table (id serial PRIMARY KEY, body bytea)")
    with pytest.raises(asyncpg.RaiseError, match='table "outbox_table" exists and lacks columns') as caught:
        await schema.create(connection)
    assert "outbox.schema.upgrade_sql()" in (caught.value.hint or "")


async def test_dropping_leaves_nothing(connection: Any) -> None:
    before = await objects(connection)
    await schema.create(connection)
    for _ in range(2):
        await connection.execute(schema.drop_sql())
    assert await objects(connection) == before


@contextlib.contextmanager
def sqlalchemy_session(url: str) -> Iterator[Session]:
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg2://"))
    with Session(engine) as session:
        yield session
    engine.dispose()


@contextlib.contextmanager
def psycopg2_connection(url: str) -> Iterator[Any]:
    connection = psycopg2.connect(url)
    yield connection
    connection.close()


PLAIN: list[Callable[[str], Any]] = [psycopg.connect, psycopg2_connection, sqlalchemy_session]


@pytest.mark.parametrize("name", ["outbox_table", "100%s $1 a :b"])
@pytest.mark.parametrize("connect", PLAIN)
def test_plain_sessions_create_upgrade_and_check(
    postgres_url: str, connect: Callable[[str], Any], name: str
) -> None:
    with connect(postgres_url) as session:
        schema.create_sync(session, name)
        schema.upgrade_sync(session, name)
        assert schema.check_sync(session, name) == []
        session.rollback()
        # Nothing was committed behind the caller's back.
        assert [problem.kind for problem in schema.check_sync(session, name)] == ["missing_table"]


@pytest.mark.parametrize("name", ["outbox_table", "100%s $1 a :b"])
@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_awaited_sqlalchemy_sessions_create_upgrade_and_check(
    postgres_url: str, driver: str, name: str
) -> None:
    engine = create_async_engine(postgres_url.replace("postgresql://", f"postgresql+{driver}://"))
    async with AsyncSession(engine) as session:
        await schema.create(session, name)
        await schema.upgrade(session, name)
        assert await schema.check(session, name) == []
        await session.rollback()
        assert [problem.kind for problem in await schema.check(session, name)] == ["missing_table"]
    await engine.dispose()


async def test_the_awaited_forms_take_a_plain_session_too(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as session:
        await schema.create(session)
        await schema.upgrade(session)
        assert await schema.check(session) == []


async def test_dead_rows_of_a_large_table_do_not_add_up_to_a_fifth(postgres_url: str) -> None:
    connection = await asyncpg.connect(postgres_url)
    await connection.execute(schema.create_sql())
    await connection.execute(inbox.create_sql())
    rows = await connection.fetch(
        "SELECT reloptions FROM pg_class WHERE relname IN ('outbox_table', 'outbox_inbox')"
    )
    assert [row["reloptions"] for row in rows] == [["autovacuum_vacuum_scale_factor=0.01"]] * 2
    await connection.close()
