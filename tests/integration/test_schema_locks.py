"""What creating and upgrading a table lock: nothing if nothing differs, and never for long."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from outbox import Emitter, schema

SECONDS = 20
"""How long a test waits for what must not be blocked."""


@pytest.fixture
async def connection(postgres_url: str) -> AsyncIterator[Any]:
    async with connected(postgres_url) as connection:
        await schema.create(connection)
        yield connection


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        connection.terminate()


@asynccontextmanager
async def open_writer(url: str) -> AsyncIterator[Any]:
    """A transaction that has emitted and not ended."""
    async with connected(url) as writer:
        transaction = writer.transaction()
        await transaction.start()
        await Emitter().emit(writer, "k", {})
        yield transaction


async def emit(url: str) -> None:
    async with connected(url) as connection, connection.transaction():
        await Emitter().emit(connection, "k", {})


async def eventually(condition: Callable[[], Awaitable[bool]], awaited: str) -> None:
    async def reached() -> None:
        while not await condition():
            await asyncio.sleep(0.02)

    try:
        await asyncio.wait_for(reached(), SECONDS)
    except TimeoutError:
        pytest.fail(f"did not happen: {awaited}")


async def table_locks(connection: Any, *, granted: bool = True) -> list[str]:
    found = await connection.fetch(
        "SELECT mode FROM pg_locks WHERE relation = 'outbox_table'::regclass AND granted = $1", granted
    )
    return sorted(row["mode"] for row in found)


@pytest.mark.parametrize("change", [schema.create, schema.upgrade])
async def test_a_current_table_is_left_without_a_lock(
    connection: Any, postgres_url: str, change: Callable[[Any], Awaitable[None]]
) -> None:
    async with open_writer(postgres_url), connection.transaction():
        before = await table_locks(connection)
        await asyncio.wait_for(change(connection), SECONDS)
        assert set(await table_locks(connection)) <= {*before, "AccessShareLock"}
        await asyncio.wait_for(emit(postgres_url), SECONDS)


@pytest.mark.parametrize("change", [schema.create, schema.upgrade])
async def test_a_current_table_needs_no_rights_beyond_looking(
    connection: Any, postgres_url: str, change: Callable[[Any], Awaitable[None]]
) -> None:
    role = f"looking_{uuid.uuid4().hex}"
    await connection.execute(f"CREATE ROLE {role}; GRANT USAGE ON SCHEMA public TO {role}")
    try:
        async with connected(postgres_url) as other:
            await other.execute(f"SET ROLE {role}")
            await change(other)
    finally:
        await connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


DAMAGES = {
    "column": "ALTER TABLE outbox_table DROP COLUMN last_error",
    "default": "ALTER TABLE outbox_table ALTER COLUMN attempts DROP DEFAULT",
    "not null": "ALTER TABLE outbox_table ALTER COLUMN attempts DROP NOT NULL",
    "null": "ALTER TABLE outbox_table ALTER COLUMN headers SET NOT NULL",
    "index": "DROP INDEX outbox_table_parked_idx",
    "stale index": "DROP INDEX outbox_table_parked_idx;"
    " CREATE INDEX outbox_table_parked_idx ON outbox_table (id)",
    "trigger": "DROP TRIGGER outbox_table_notify ON outbox_table",
    "outdated trigger": "DROP TRIGGER outbox_table_notify ON outbox_table;"
    " CREATE TRIGGER outbox_table_notify AFTER INSERT ON outbox_table"
    " FOR EACH ROW EXECUTE FUNCTION outbox_table_notify()",
    "storage": "ALTER TABLE outbox_table RESET (autovacuum_vacuum_scale_factor)",
}  # fmt: skip


@pytest.mark.parametrize("damage", ["column", "index", "trigger"])
async def test_emitters_get_through_while_an_upgrade_waits(
    connection: Any, postgres_url: str, damage: str
) -> None:
    await connection.execute(DAMAGES[damage])
    async with open_writer(postgres_url) as writing, connected(postgres_url) as watching:

        async def is_waiting() -> bool:
            return bool(await table_locks(watching, granted=False))

        upgrading = asyncio.create_task(schema.upgrade(connection))
        await eventually(is_waiting, "the upgrade waits for its lock")
        await asyncio.wait_for(emit(postgres_url), SECONDS)
        assert not upgrading.done()
        await writing.commit()
        await asyncio.wait_for(upgrading, SECONDS)
    assert await schema.check(connection) == []


@pytest.mark.parametrize("upgrading", ["upgrade", "plan"])
async def test_storage_parameters_are_set_beside_an_open_transaction(
    connection: Any, postgres_url: str, upgrading: str
) -> None:
    """Of an emitter or a relay of any version: none of them has to end first."""
    await connection.execute(DAMAGES["storage"])
    change = schema.upgrade if upgrading == "upgrade" else run_plan
    async with open_writer(postgres_url), connected(postgres_url) as relay, relay.transaction():
        await relay.execute("SELECT FROM outbox_table FOR UPDATE SKIP LOCKED")
        await asyncio.wait_for(change(connection), SECONDS)
        await asyncio.wait_for(emit(postgres_url), SECONDS)
    assert await schema.check(connection) == []


@asynccontextmanager
async def busy_autovacuum(url: str) -> AsyncIterator[None]:
    """Autovacuum works on the table until the end of the block, or until it gives way to somebody."""
    async with connected(url) as connection:
        await connection.execute("ALTER SYSTEM SET autovacuum = on")
        await connection.execute("ALTER SYSTEM SET autovacuum_naptime = '1s'")
        await connection.execute("SELECT pg_reload_conf()")
        try:
            await connection.execute(
                """
                ALTER TABLE outbox_table
                    SET (autovacuum_vacuum_cost_delay = 100, autovacuum_vacuum_cost_limit = 1);
                INSERT INTO outbox_table (routing_key, body) SELECT 'k', '' FROM generate_series(1, 20000);
                DELETE FROM outbox_table
                """
            )

            async def is_vacuuming() -> bool:
                return bool(await connection.fetchval("SELECT count(*) FROM pg_stat_progress_vacuum"))

            await eventually(is_vacuuming, "autovacuum begins")
            yield
        finally:
            await connection.execute("ALTER SYSTEM SET autovacuum = off")
            await connection.execute("ALTER SYSTEM RESET autovacuum_naptime")
            await connection.execute("SELECT pg_reload_conf()")


@pytest.mark.parametrize("damage", ["storage", "index", "column"])
async def test_autovacuum_gives_way_to_an_upgrade(lone_url: str, damage: str) -> None:
    """It does to whoever has waited for as long as `deadlock_timeout`."""
    async with connected(lone_url) as connection:
        await schema.create(connection)
        await connection.execute(DAMAGES[damage])
        async with busy_autovacuum(lone_url):
            await schema.upgrade(connection, lock_attempts=3)
        assert await schema.check(connection) == []


async def test_storage_parameters_of_the_owner_stay(connection: Any) -> None:
    await connection.execute(
        "ALTER TABLE outbox_table SET (autovacuum_vacuum_scale_factor = 0.5, autovacuum_enabled = false)"
    )
    await schema.upgrade(connection)
    await schema.create(connection)
    options = await connection.fetchval("SELECT reloptions FROM pg_class WHERE relname = 'outbox_table'")
    assert sorted(options) == ["autovacuum_enabled=false", "autovacuum_vacuum_scale_factor=0.5"]


async def test_emitters_get_through_while_a_drop_waits(connection: Any, postgres_url: str) -> None:
    async with open_writer(postgres_url) as writing, connected(postgres_url) as watching:

        async def is_waiting() -> bool:
            return bool(await table_locks(watching, granted=False))

        dropping = asyncio.create_task(connection.execute(schema.drop_sql()))
        await eventually(is_waiting, "the drop waits for its lock")
        await asyncio.wait_for(emit(postgres_url), SECONDS)
        assert not dropping.done()
        await writing.commit()
        await asyncio.wait_for(dropping, SECONDS)
    assert [problem.kind for problem in await schema.check(connection)] == ["missing_table"]
    await connection.execute(schema.drop_sql())


@pytest.mark.parametrize("damage", DAMAGES)
async def test_every_difference_is_mended_in_one_statement(connection: Any, damage: str) -> None:
    await connection.execute(DAMAGES[damage])
    await schema.upgrade(connection)
    assert await schema.check(connection) == []


async def test_an_upgrade_without_its_lock_names_who_holds_it(connection: Any, postgres_url: str) -> None:
    await connection.execute(DAMAGES["column"])
    async with open_writer(postgres_url):
        with pytest.raises(asyncpg.LockNotAvailableError) as refused:
            await schema.upgrade(connection, lock_timeout=timedelta(milliseconds=20), lock_attempts=2)
        assert 'table "outbox_table" is in use' in str(refused.value)
        assert "ACCESS EXCLUSIVE" in str(refused.value)
        holder = await connection.fetchval(
            "SELECT pid FROM pg_locks WHERE relation = 'outbox_table'::regclass AND pid <> pg_backend_pid()"
        )
        assert str(holder) in (refused.value.hint or "")
    assert [problem.kind for problem in await schema.check(connection)] == ["missing_column"]


@pytest.mark.parametrize(("given", "kept"), [("0", "0"), ("7s", "7s")])
async def test_the_sessions_own_lock_timeout_is_as_before(connection: Any, given: str, kept: str) -> None:
    await connection.execute(DAMAGES["column"])
    async with connection.transaction():
        await connection.execute(f"SET LOCAL lock_timeout = '{given}'")
        await schema.upgrade(connection)
        assert await connection.fetchval("SHOW lock_timeout") == kept


async def run_plan(connection: Any) -> None:
    for step in await schema.plan_upgrade(connection):
        await connection.execute(step.sql)


@pytest.mark.parametrize("damage", DAMAGES)
async def test_the_steps_of_a_plan_leave_nothing_to_upgrade(connection: Any, damage: str) -> None:
    await connection.execute(DAMAGES[damage])
    await run_plan(connection)
    assert await schema.plan_upgrade(connection) == []
    assert await schema.check(connection) == []
    async with connection.transaction():
        await schema.upgrade(connection)
        assert set(await table_locks(connection)) <= {"AccessShareLock"}


async def test_emitters_get_through_while_an_index_is_built(connection: Any, postgres_url: str) -> None:
    await connection.execute(DAMAGES["index"])
    async with open_writer(postgres_url) as writing, connected(postgres_url) as watching:

        async def is_building() -> bool:
            query = (
                "SELECT count(*) FROM pg_stat_progress_create_index WHERE phase LIKE 'waiting for writers%'"
            )
            return bool(await watching.fetchval(query))

        building = asyncio.create_task(run_plan(connection))
        await eventually(is_building, "the index waits for the open writer")
        await asyncio.wait_for(emit(postgres_url), SECONDS)
        assert not building.done()
        await writing.commit()
        await asyncio.wait_for(building, SECONDS)
    assert await schema.check(connection) == []
