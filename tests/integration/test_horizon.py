"""What holds back vacuum on a real Postgres: each kind of holder is found, named, and ended by its cure."""

import asyncio
import re
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TypeAlias

import asyncpg
import pytest

from outbox import schema
from outbox.table import TableName
from outbox_core import backlog
from outbox_core.horizon import oldest_holder
from outbox_core.horizon_holder import Holder, HolderKind
from tests.chaos.standby import Pair, replicated
from tests.integration.lone_postgres import at
from tests.integration.relaying import until

Connect: TypeAlias = Callable[..., Awaitable[asyncpg.Connection]]

OPEN_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1"
OPEN_CHANGE = "BEGIN; SELECT pg_current_xact_id()"
ENDED = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError)
"""What a session raises that was ended."""
SLOW_VACUUM = "SET vacuum_cost_delay = 100; SET vacuum_cost_limit = 1"


@pytest.fixture
async def connect(lone_url: str) -> AsyncIterator[Connect]:
    """Opens sessions, and closes them at the end."""
    sessions: list[asyncpg.Connection] = []

    async def connected(url: str = lone_url, **settings: str) -> asyncpg.Connection:
        session = await asyncpg.connect(url, server_settings=settings)
        sessions.append(session)
        return session

    yield connected
    for session in sessions:
        session.terminate()


@pytest.fixture
async def observer(connect: Connect) -> asyncpg.Connection:
    """A session that may see everything."""
    return await connect()


@pytest.fixture
async def poor(lone_server_url: str, lone_url: str, connect: Connect) -> AsyncIterator[asyncpg.Connection]:
    """A session of a role that may connect, and no more."""
    role = f"poor_{uuid.uuid4().hex}"
    administrator = await asyncpg.connect(lone_server_url)
    await administrator.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{role}'")
    session = await connect(at(lone_url, user=role))
    yield session
    await session.close()
    await administrator.execute(f"DROP ROLE {role}")
    await administrator.close()


async def held_by(observer: asyncpg.Connection, kind: HolderKind, **attributes: object) -> Holder:
    """Wait until such a holder is the oldest one."""
    found: list[Holder | None] = []

    async def is_it() -> bool:
        found[:] = [holder] = [await oldest_holder(observer)]
        return bool(
            holder
            and holder.kind is kind
            and all(getattr(holder, name) == value for name, value in attributes.items())
        )

    await until(is_it, lambda: f"{kind} {attributes} to hold the horizon, found {found}")
    [holder] = found
    assert holder is not None
    return holder


async def until_free(observer: asyncpg.Connection) -> None:
    async def is_free() -> bool:
        return await oldest_holder(observer) is None

    await until(is_free, "nothing to hold the horizon")


async def end_as_told(connection: asyncpg.Connection, holder: Holder) -> None:
    """Run the command of its cure."""
    command = re.search("`([^`]+)`", holder.cure)
    assert command, holder.cure
    await connection.execute(command[1])


# -- sessions


async def test_a_snapshot_left_open_is_named_and_ended(
    observer: asyncpg.Connection, connect: Connect
) -> None:
    session = await connect(application_name="nightly report")
    await session.execute(OPEN_SNAPSHOT)
    holder = await held_by(observer, HolderKind.SESSION, pid=session.get_server_pid())
    assert holder.began_at is not None
    assert holder.description == (
        f'session {holder.pid} (application "nightly report", role "outbox", database "{holder.database}"), '
        f"whose transaction began at {holder.began_at:%Y-%m-%d %H:%M:%S} UTC"
    )
    await end_as_told(observer, holder)
    await until_free(observer)


async def test_a_long_query_is_named(observer: asyncpg.Connection, connect: Connect) -> None:
    session = await connect()
    running = asyncio.create_task(session.execute("SELECT pg_sleep(600)"))
    holder = await held_by(observer, HolderKind.SESSION, pid=session.get_server_pid())
    await end_as_told(observer, holder)
    with pytest.raises(ENDED):
        await running
    await until_free(observer)


async def test_a_transaction_without_a_snapshot_holds_nothing(
    observer: asyncpg.Connection, connect: Connect
) -> None:
    session = await connect()
    await session.execute("BEGIN; SELECT 1")
    assert await oldest_holder(observer) is None


async def test_a_change_is_named_before_the_snapshots_that_wait_for_it(
    observer: asyncpg.Connection, connect: Connect
) -> None:
    changing, reading = await connect(), await connect()
    await changing.execute(OPEN_CHANGE)
    await reading.execute(OPEN_SNAPSHOT)
    first = await held_by(observer, HolderKind.SESSION, pid=changing.get_server_pid())
    await changing.execute("ROLLBACK")
    second = await held_by(observer, HolderKind.SESSION, pid=reading.get_server_pid())
    assert first.xid == second.xid


async def test_a_session_of_another_database_holds_by_its_changes_alone(
    observer: asyncpg.Connection, connect: Connect, lone_server_url: str
) -> None:
    elsewhere = await connect(lone_server_url)
    await elsewhere.execute(OPEN_SNAPSHOT)
    assert await oldest_holder(observer) is None
    await elsewhere.execute("ROLLBACK")
    await elsewhere.execute(OPEN_CHANGE)
    await held_by(observer, HolderKind.SESSION, pid=elsewhere.get_server_pid(), database="postgres")


async def test_a_vacuum_holds_nothing(observer: asyncpg.Connection, connect: Connect) -> None:
    await observer.execute("CREATE TABLE large AS SELECT generate_series(1, 200000) AS id")
    session = await connect()
    await session.execute(SLOW_VACUUM)

    vacuum = asyncio.create_task(session.execute("VACUUM large"))

    async def is_running() -> bool:
        row = await observer.fetchrow(
            "SELECT backend_xmin FROM pg_stat_activity JOIN pg_stat_progress_vacuum USING (pid) "
            "WHERE pid = $1",
            session.get_server_pid(),
        )
        return row is not None and row["backend_xmin"] is not None

    await until(is_running, "VACUUM to have a snapshot")
    assert await oldest_holder(observer) is None
    session.terminate()
    with pytest.raises(ENDED):
        await vacuum


async def test_without_rights_the_session_of_another_role_is_still_named(
    poor: asyncpg.Connection, observer: asyncpg.Connection, connect: Connect
) -> None:
    session = await connect(application_name='re"port\n\x1b[31m')
    await session.execute(OPEN_SNAPSHOT)
    pid = session.get_server_pid()
    holder = await held_by(poor, HolderKind.SESSION, pid=pid)
    assert (holder.began_at, holder.seconds) == (None, None)
    assert holder.name is not None
    assert holder.name.isprintable()
    assert 'application "re""port' in holder.description
    assert holder.description.endswith(", of which a role with pg_read_all_stats sees more")
    role = await poor.fetchval("SELECT current_user")
    await observer.execute(f"GRANT pg_read_all_stats TO {role}")
    assert (await held_by(poor, HolderKind.SESSION, pid=pid)).began_at is not None


async def test_a_role_that_may_not_read_the_views_finds_nothing(
    poor: asyncpg.Connection, observer: asyncpg.Connection, connect: Connect
) -> None:
    session = await connect()
    await session.execute(OPEN_SNAPSHOT)
    await observer.execute("REVOKE SELECT ON pg_catalog.pg_prepared_xacts FROM PUBLIC")
    assert await oldest_holder(poor) is None
    assert await poor.fetchval("SELECT 1") == 1


# -- prepared transactions


@pytest.mark.parametrize("gid", ["7_mail", "it's \\a `test", "new\nline\x1b[31m", "é"])
async def test_a_prepared_transaction_is_named_and_ended(
    observer: asyncpg.Connection, connect: Connect, gid: str
) -> None:
    session = await connect()
    quoted = await observer.fetchval("SELECT quote_literal($1::text)", gid)
    await session.execute(f"{OPEN_CHANGE}; PREPARE TRANSACTION {quoted}")
    holder = await held_by(observer, HolderKind.PREPARED_TRANSACTION)
    assert holder.began_at is not None
    assert (holder.description + holder.cure).isprintable()
    if gid.isascii() and gid.isprintable():
        assert holder.name == gid
        assert f"`ROLLBACK PREPARED {quoted}`" in holder.cure
    else:
        command = re.search("`([^`]+)`", holder.cure)
        assert command
        assert await observer.fetchval(command[1]) == gid
    await observer.execute(f"ROLLBACK PREPARED {quoted}")
    await until_free(observer)


async def test_a_gid_that_is_no_text_here_does_not_hide_the_transaction(
    observer: asyncpg.Connection, connect: Connect, lone_server_url: str
) -> None:
    await observer.execute("CREATE DATABASE bytes ENCODING 'SQL_ASCII' TEMPLATE template0 LOCALE 'C'")
    elsewhere = await connect(at(lone_server_url, database="bytes"))
    await elsewhere.execute(f"{OPEN_CHANGE}; PREPARE TRANSACTION E'\\377\\200'")
    holder = await held_by(observer, HolderKind.PREPARED_TRANSACTION, database="bytes", name=None)
    assert holder.description.startswith(f"prepared transaction with xid {holder.xid} (")
    await elsewhere.execute("ROLLBACK PREPARED E'\\377\\200'")
    await elsewhere.close()
    await observer.execute("DROP DATABASE bytes WITH (FORCE)")


# -- slots and standbys


async def test_a_slot_of_catalogs_holds_no_rows(observer: asyncpg.Connection) -> None:
    await observer.execute("SELECT pg_create_logical_replication_slot('changes', 'test_decoding')")
    try:
        slots = await observer.fetch("SELECT xmin, catalog_xmin FROM pg_replication_slots")
        assert [(slot["xmin"], slot["catalog_xmin"] is None) for slot in slots] == [(None, False)]
        assert await oldest_holder(observer) is None
    finally:
        await observer.execute("SELECT pg_drop_replication_slot('changes')")


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A primary and its standby."""
    with replicated() as pair:
        yield pair


async def test_what_a_standby_holds_is_named_and_ended(pair: Pair, connect: Connect) -> None:
    primary, standby = await connect(pair.primary.url), await connect(pair.standby.url)

    async def configure(server: asyncpg.Connection, *changes: str) -> None:
        for change in (*changes, "ALTER SYSTEM SET wal_receiver_status_interval = 1"):
            await server.execute(change)
        await server.execute("SELECT pg_reload_conf()")

    await configure(primary, "ALTER SYSTEM RESET synchronous_standby_names")
    await primary.execute("SELECT pg_create_physical_replication_slot('replica')")
    await configure(standby, "ALTER SYSTEM SET hot_standby_feedback = on")
    reading = await connect(pair.standby.url)
    await reading.execute(OPEN_SNAPSHOT)
    holder = await held_by(primary, HolderKind.STANDBY)
    assert holder.description == 'standby "standby" with hot_standby_feedback'

    await configure(standby, "ALTER SYSTEM SET primary_slot_name = 'replica'")
    holder = await held_by(primary, HolderKind.REPLICATION_SLOT, name="replica", is_active=True)
    await end_as_told(standby, holder)
    await until(reading.is_closed, "the session on the standby to be ended")

    async def has_moved() -> bool:
        await primary.execute("SELECT pg_current_xact_id()")
        now = await oldest_holder(primary)
        return now is not None and now.xid > holder.xid

    await until(has_moved, "the standby to let go")
    await configure(standby, "ALTER SYSTEM RESET primary_slot_name")
    unused = await held_by(primary, HolderKind.REPLICATION_SLOT, name="replica", is_active=False)
    assert unused.description == 'replication slot "replica", which nobody uses'
    await end_as_told(primary, unused)
    assert await primary.fetch("SELECT FROM pg_replication_slots") == []


# -- the table


async def test_dead_rows_are_counted_in_all_partitions(observer: asyncpg.Connection) -> None:
    await schema.create(observer)
    table = TableName.parse("outbox_table")
    await observer.execute(
        "INSERT INTO outbox_table (routing_key, body) SELECT 'a', '' FROM generate_series(1, 300)"
    )
    await observer.execute("DELETE FROM outbox_table")

    async def are_counted() -> bool:
        return (await backlog.measure(observer, table)).dead_rows == 300

    await until(are_counted, "300 dead rows")
    await observer.execute("VACUUM outbox_table")

    async def are_gone() -> bool:
        return (await backlog.measure(observer, table)).dead_rows == 0

    await until(are_gone, "no dead rows")
