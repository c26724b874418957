"""The table in Alembic's and SQLAlchemy's hands: migrations by `op.execute`, and autogenerate."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Connection, Engine, MetaData, create_engine, insert, select
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from outbox import schema
from outbox.table import INDEXES


@pytest.fixture(params=["psycopg", "psycopg2"])
def engine(postgres_url: str, request: pytest.FixtureRequest) -> Iterator[Engine]:
    engine = create_engine(postgres_url.replace("postgresql://", f"postgresql+{request.param}://"))
    yield engine
    engine.dispose()


@pytest.fixture
async def async_engine(postgres_url: str) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(postgres_url.replace("postgresql://", "postgresql+asyncpg://"))
    yield engine
    await engine.dispose()


def migrate(connection: Connection, *statements: str) -> None:
    context = MigrationContext.configure(connection)
    with Operations.context(context), context.begin_transaction():
        from alembic import op

        for statement in statements:
            op.execute(statement)


def differences(connection: Connection, metadata: MetaData) -> Any:
    options = {"compare_type": True, "compare_server_default": True, "include_schemas": True}
    return compare_metadata(MigrationContext.configure(connection, opts=options), metadata)


MIGRATIONS = [schema.create_sql(), schema.upgrade_sql(), schema.create_sql("shop.Outbox 100%")]


def test_a_migration_runs_on_a_plain_engine(engine: Engine) -> None:
    with engine.begin() as connection:
        migrate(connection, "CREATE SCHEMA shop", *MIGRATIONS)
        assert schema.check_sync(connection) == []
        assert schema.check_sync(connection, "shop.Outbox 100%") == []
        migrate(connection, schema.drop_sql())
        assert [problem.kind for problem in schema.check_sync(connection)] == ["missing_table"]


async def test_a_migration_runs_on_an_asyncpg_engine(async_engine: AsyncEngine) -> None:
    async with async_engine.begin() as connection:
        await connection.run_sync(migrate, "CREATE SCHEMA shop", *MIGRATIONS)
        assert await schema.check(connection) == []
        assert await schema.check(connection, "shop.Outbox 100%") == []
        await connection.run_sync(migrate, schema.drop_sql())
        assert [problem.kind for problem in await schema.check(connection)] == ["missing_table"]


@pytest.mark.parametrize("name", ["outbox_table", "shop.outbox_table", 'Shop."Out.box"', "x" * 63])
def test_autogenerate_finds_no_difference(engine: Engine, name: str) -> None:
    metadata = MetaData()
    schema.table(metadata, name)
    with engine.begin() as connection:
        migrate(connection, "CREATE SCHEMA shop", 'CREATE SCHEMA "Shop"', schema.create_sql(name))
        assert differences(connection, metadata) == []


def test_autogenerate_finds_no_difference_in_an_upgraded_table(engine: Engine) -> None:
    metadata = MetaData()
    schema.table(metadata)
    original = (
        "CREATE TABLE outbox_table (id SERIAL PRIMARY KEY, routing_key TEXT NOT NULL, body BYTEA NOT NULL,"
        " tracking_ids JSON NOT NULL, created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(), expiration INTERVAL,"
        " send_after TIMESTAMPTZ NOT NULL, sent_at TIMESTAMPTZ)"
    )
    with engine.begin() as connection:
        migrate(connection, original, schema.upgrade_sql())
        assert differences(connection, metadata) == []


def test_autogenerate_would_create_what_is_missing(engine: Engine) -> None:
    metadata = MetaData()
    schema.table(metadata)
    with engine.begin() as connection:
        operations = [difference[0] for difference in differences(connection, metadata)]
    assert operations == ["add_table", *["add_index"] * len(INDEXES)]


@pytest.mark.parametrize("name", ["outbox_table", "Outbox 100%"])
def test_create_all_makes_a_whole_table(engine: Engine, name: str) -> None:
    metadata = MetaData(schema="public")
    table = schema.table(metadata, name, channel="another")
    with engine.begin() as connection:
        metadata.create_all(connection)
        assert schema.check_sync(connection, name, channel="another") == []
        connection.execute(insert(table).values(routing_key="a", body=b"", headers=None))
        assert connection.execute(select(table.c.headers.is_(None))).scalar_one()


async def test_a_migration_and_an_application_create_the_table_at_once(
    postgres_url: str, async_engine: AsyncEngine
) -> None:
    application = await asyncpg.connect(postgres_url)

    async def migration() -> None:
        async with async_engine.begin() as connection:
            await connection.run_sync(migrate, schema.create_sql())

    try:
        await asyncio.gather(migration(), schema.create(application))
        assert await schema.check(application) == []
    finally:
        await application.close()
