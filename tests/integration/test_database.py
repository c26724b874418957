"""Connecting to a real Postgres, and what is said where that fails."""

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import psycopg
import pytest
from psycopg import sql
from sqlalchemy.ext.asyncio import create_async_engine

from outbox_core import loop
from outbox_core.database import (
    AccessDeniedError,
    AuthenticationError,
    Database,
    DatabaseError,
    DatabaseMissingError,
    UnreachableError,
    is_lost,
)
from tests.integration.test_worker_inbox import Door


def changed(url: str, *, user: str | None = None, password: str | None = None, **parts: str) -> str:
    """The URL with other parts."""
    split = urlsplit(url)
    user, password = user or split.username, password or split.password
    netloc = parts.pop("netloc", f"{user}:{password}@{split.hostname}:{split.port}")
    return urlunsplit(split._replace(netloc=netloc, **parts))


@pytest.fixture
async def stranger(postgres_url: str) -> AsyncIterator[str]:
    """A URL with a user of its own, who may do nothing much."""
    name, database = urlsplit(postgres_url).path[1:] + "_user", urlsplit(postgres_url).path[1:]
    role = sql.Identifier(name)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'pw'").format(role))
        connection.execute(
            sql.SQL("REVOKE CONNECT ON DATABASE {} FROM PUBLIC").format(sql.Identifier(database))
        )
    yield changed(postgres_url, user=name, password="pw")  # noqa: S106 - made up
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP ROLE {}").format(role))


async def session(connection: Any) -> Any:
    return await connection.fetchrow(
        "SELECT current_setting('application_name') AS name, current_setting('tcp_keepalives_idle') AS idle,"
        " current_database() AS database"
    )


async def test_a_connection_has_its_name_and_keeps_alive_on_both_ends(postgres_url: str) -> None:
    connection = await Database(postgres_url).connect("outbox-relay")
    row = await session(connection)
    sock = connection._transport.get_extra_info("socket")
    assert (row["name"], row["idle"]) == ("outbox-relay", "30")
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    await connection.close()


def test_a_connection_works_on_the_loop_that_programs_use(postgres_url: str) -> None:
    async def main() -> tuple[str, int]:
        connection = await Database(postgres_url).connect("outbox-relay")
        row = await session(connection)
        sock = connection._transport.get_extra_info("socket")
        kept = sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        await connection.close()
        return row["name"], kept

    assert loop.run(main()) == ("outbox-relay", 1)


@pytest.mark.parametrize("dialect", ["postgres", "postgresql+asyncpg", "postgresql+psycopg2"])
async def test_every_dialect_of_the_url_connects(postgres_url: str, dialect: str) -> None:
    url = changed(postgres_url, scheme=dialect, query="connect_timeout=20&application_name=mine")
    connection = await Database(url).connect()
    row = await session(connection)
    assert (row["database"], row["name"]) == (urlsplit(postgres_url).path[1:], "outbox")
    await connection.close()


async def test_an_engine_of_the_application_tells_where_to_connect(postgres_url: str) -> None:
    engine = create_async_engine(changed(postgres_url, scheme="postgresql+asyncpg"))
    connection = await Database(engine).connect()
    assert (await session(connection))["database"] == urlsplit(postgres_url).path[1:]
    await connection.close()
    await engine.dispose()


@pytest.mark.parametrize(("pooled", "kept"), [(True, 0), (False, 1)])
async def test_a_pooled_database_keeps_no_prepared_statements(
    postgres_url: str, pooled: bool, kept: int
) -> None:
    connection = await Database(postgres_url, pooled=pooled).connect()
    await connection.fetchval("SELECT $1::int", 1)
    assert (
        len(await connection.fetch("SELECT FROM pg_prepared_statements WHERE statement LIKE '%$1::int'"))
        == kept
    )
    await connection.close()


async def failure(url: str) -> DatabaseError:
    with pytest.raises(DatabaseError) as caught:
        await Database(url).connect()
    assert "\n" not in str(caught.value)
    return caught.value


async def test_a_wrong_password_is_said_without_saying_it(postgres_url: str) -> None:
    error = await failure(changed(postgres_url, password="s3cret"))  # noqa: S106 - made up
    assert isinstance(error, AuthenticationError)
    assert "s3cret" not in str(error)
    assert str(error).startswith(f"{Database(postgres_url).where}: password authentication failed")
    assert not is_lost(error)


async def test_an_unknown_user_is_an_authentication_error(postgres_url: str) -> None:
    assert isinstance(await failure(changed(postgres_url, user="nobody")), AuthenticationError)


async def test_a_missing_database_is_named_with_its_cure(postgres_url: str) -> None:
    error = await failure(changed(postgres_url, path="/nowhere"))
    assert isinstance(error, DatabaseMissingError)
    assert 'database "nowhere" does not exist; create the database' in str(error)


async def test_a_user_who_may_not_connect_is_told_what_to_grant(stranger: str) -> None:
    error = await failure(stranger)
    assert isinstance(error, AccessDeniedError)
    assert "GRANT CONNECT" in str(error)


async def test_an_unknown_setting_is_said_to_come_from_the_url(postgres_url: str) -> None:
    error = await failure(changed(postgres_url, query="no_such_setting=1"))
    assert type(error) is DatabaseError
    assert 'unrecognized configuration parameter "no_such_setting"; check the parameters' in str(error)


async def test_a_port_that_nobody_listens_on_is_unreachable() -> None:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        port = unheard.getsockname()[1]
        error = await failure(f"postgresql://app:s3cret@127.0.0.1:{port}/shop")
    assert isinstance(error, UnreachableError)
    assert str(error).startswith(f"Postgres 127.0.0.1:{port}/shop (user app): ")
    assert "s3cret" not in str(error)
    assert is_lost(error)


async def test_a_host_that_nobody_knows_is_unreachable() -> None:
    assert isinstance(await failure("postgresql://app:pw@no-such-host.invalid/shop"), UnreachableError)


async def test_a_socket_that_is_not_there_is_unreachable() -> None:
    error = await failure("postgresql://app:pw@/shop?host=/nowhere")
    assert isinstance(error, UnreachableError)
    assert "check the folder of the server's socket" in str(error)


async def test_a_server_that_never_answers_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        error = await failure(f"postgresql://app:pw@127.0.0.1:{port}/shop?connect_timeout=0.2")
    assert isinstance(error, UnreachableError)
    assert "no answer in time" in str(error)


async def test_a_session_that_the_server_ends_is_lost(postgres_url: str) -> None:
    database = Database(postgres_url)
    doomed, other = await database.connect(), await database.connect()
    closed = asyncio.Event()
    doomed.add_termination_listener(lambda _: closed.set())
    await other.execute(f"SELECT pg_terminate_backend({doomed.get_server_pid()})")
    async with asyncio.timeout(20):
        await closed.wait()
    with pytest.raises(Exception) as caught:  # noqa: PT011 - which class it is, is what is_lost is for
        await doomed.fetchval("SELECT 1")
    assert is_lost(caught.value)
    await other.close()


# --- Several hosts ------------------------------------------------------------------------------------------


def several(url: str, *hosts: str, query: str = "", password: str | None = None) -> str:
    split = urlsplit(url)
    netloc = f"{split.username}:{password or split.password}@{','.join(hosts)}"
    return changed(url, netloc=netloc, query=query)


async def test_the_next_host_is_used_if_one_cannot_be_reached(postgres_url: str) -> None:
    port = urlsplit(postgres_url).port
    database = Database(several(postgres_url, "127.0.0.1:1", f"127.0.0.1:{port}"))
    connection = await database.connect()
    assert await connection.fetchval("SELECT 1") == 1
    await connection.close()


async def test_the_next_host_is_used_if_one_does_not_answer(postgres_url: str) -> None:
    asked = 0

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        await reader.read()
        writer.close()

    async with await asyncio.start_server(mute, "127.0.0.1", 0) as server:
        silent, port = server.sockets[0].getsockname()[1], urlsplit(postgres_url).port
        hosts = f"127.0.0.1:{silent}", f"127.0.0.1:{port}"
        database = Database(several(postgres_url, *hosts, query="connect_timeout=0.2&sslmode=disable"))
        for _ in range(3):
            await (await database.connect()).close()
    # The host that could be used is the first one to be tried the next time.
    assert asked == 1


async def test_hosts_may_be_ipv6_addresses_behind_a_password_of_special_characters(postgres_url: str) -> None:
    parts, password = urlsplit(postgres_url), "p,@:/[é?#%2C"
    name = f"{parts.path[1:]}_user"
    role = sql.Identifier(name)
    door = Door(parts.hostname or "", parts.port or 5432, own_host="::1")
    await door.open()
    with psycopg.connect(postgres_url, autocommit=True) as administrator:
        administrator.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(role, sql.Literal(password)))
        hosts = f"[::1]:1,127.0.0.1:1,[::1]:{door.own_port}"
        netloc = f"{name}:{quote(password, safe='')}@{hosts}"
        connection = await Database(changed(postgres_url, netloc=netloc)).connect()
        assert await connection.fetchval("SELECT current_user") == name
        await connection.close()
        administrator.execute(sql.SQL("DROP ROLE {}").format(role))
    await door.shut()


async def test_an_error_says_which_hosts_were_tried_and_why_each_failed(postgres_url: str) -> None:
    port = urlsplit(postgres_url).port
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        name = sql.Identifier(connection.info.dbname)
        connection.execute(sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on").format(name))
    error = await failure(several(postgres_url, "127.0.0.1:1", f"127.0.0.1:{port}"))
    assert isinstance(error, UnreachableError)
    assert is_lost(error)
    assert "(127.0.0.1:1: " in str(error)
    assert f", 127.0.0.1:{port}: it is not what target_session_attrs asks for); " in str(error)
    assert str(urlsplit(postgres_url).password) not in str(error)


async def test_a_read_only_server_is_used_if_the_url_allows_it(postgres_url: str) -> None:
    port = urlsplit(postgres_url).port
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        name = sql.Identifier(connection.info.dbname)
        connection.execute(sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on").format(name))
    for wanted in ("any", "read-only", "prefer-standby"):
        query = f"target_session_attrs={wanted}"
        url = several(postgres_url, "127.0.0.1:1", f"127.0.0.1:{port}", query=query)
        await (await Database(url).connect()).close()


async def test_a_wrong_password_names_the_one_host_that_refused_it(postgres_url: str) -> None:
    port = urlsplit(postgres_url).port
    url = several(postgres_url, "127.0.0.1:1", f"127.0.0.1:{port}", password="s3cret")  # noqa: S106 - made up
    error = await failure(url)
    assert isinstance(error, AuthenticationError)
    assert str(error).startswith(f"Postgres 127.0.0.1:{port}/")
    assert "s3cret" not in str(error)
