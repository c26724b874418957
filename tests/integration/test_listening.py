"""LISTEN on a real Postgres, with its session ended under it, and behind a real PgBouncer."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import psycopg
import pytest
from psycopg import sql

from outbox import schema
from outbox_cli.local import Services
from outbox_core.database import Database
from outbox_core.echo import Echo
from outbox_core.listening import Listening, Pace
from tests.integration.pgbouncer import PgBouncer

_DEADLINE_SECONDS = 60
QUICK = Pace(probe_every_seconds=0.2, heard_within_seconds=30, retry_seconds=0.05, retry_limit_seconds=0.1)
"""Tests wait for probes and retries, not for half a minute. A busy machine may take long to deliver."""

DEAF = Pace(probe_every_seconds=3600, heard_within_seconds=1, retry_seconds=0.05, retry_limit_seconds=0.1)
"""For what is not heard, which is waited for in vain. A busy machine only adds to the tries."""


class Ear:
    """A `Listening` that runs, and what it told."""

    def __init__(self, url: str, pace: Pace = QUICK, **arguments: Any) -> None:
        self.payloads: list[str] = []
        self.listening = Listening(
            Database(url), self.payloads.append, pace=pace, poll_seconds=10, **arguments
        )

    async def hears(self, payload: str) -> None:
        await until(lambda: payload in self.payloads, f"a notification {payload!r}")

    async def lives(self) -> None:
        await until(lambda: self.listening.is_alive, "LISTEN to be alive")


async def until(condition: Callable[[], bool], what: str) -> None:
    try:
        async with asyncio.timeout(_DEADLINE_SECONDS):
            while not condition():
                await asyncio.sleep(0.01)
    except TimeoutError:
        pytest.fail(f"waited {_DEADLINE_SECONDS} s for {what}")


@asynccontextmanager
async def running(ear: Ear) -> AsyncIterator[Ear]:
    task = asyncio.create_task(ear.listening.run())
    try:
        yield ear
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not ear.listening.is_alive


@pytest.fixture
async def connection(postgres_url: str) -> AsyncIterator[Any]:
    """A session of the application, with its table."""
    connection = await asyncpg.connect(postgres_url)
    await schema.create(connection)
    yield connection
    await connection.close()


class Said:
    """What was logged, by level and message."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog

    @property
    def to_people(self) -> list[str]:
        return [line for line in self.lines if not line.startswith("DEBUG ")]

    @property
    def lines(self) -> list[str]:
        return [
            f"{record.levelname} {record.getMessage()}"
            for record in self._caplog.records
            if record.name == "outbox.listening"
        ]

    async def often(self, beginning: str, times: int) -> None:
        """Wait until a line with this beginning was logged so many times."""
        await until(
            lambda: sum(line.startswith(beginning) for line in self.lines) >= times,
            f"{times} lines {beginning!r}",
        )


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Said:
    caplog.set_level(logging.DEBUG, "outbox.listening")
    return Said(caplog)


ANNOUNCE = "SELECT pg_notify('outbox_channel', 'public.outbox_table')"


async def test_a_session_that_ends_before_its_probe_is_heard_is_replaced_at_once(
    postgres_url: str, connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pace = Pace(heard_within_seconds=3600, retry_seconds=0.05, retry_limit_seconds=0.1)
    ear = Ear(postgres_url, pace)
    send = Echo._send

    async def end_the_listener(echo: Echo, payload: str, listener: Any) -> None:
        monkeypatch.setattr(Echo, "_send", send)
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name = 'outbox-listen'"
        )

    monkeypatch.setattr(Echo, "_send", end_the_listener)
    async with running(ear):
        await ear.lives()


async def test_an_insert_is_heard(postgres_url: str, connection: Any) -> None:
    async with running(Ear(postgres_url)) as ear:
        await ear.lives()
        await connection.execute(ANNOUNCE)
        await ear.hears("public.outbox_table")


async def test_whoever_connects_is_told_to_look_for_what_it_missed(postgres_url: str) -> None:
    async with running(Ear(postgres_url)) as ear:
        await ear.lives()
        assert ear.payloads == [""]


async def test_only_what_concerns_the_table_is_passed_on(postgres_url: str, connection: Any) -> None:
    async with running(Ear(postgres_url, table="shop.outbox_table")) as ear, running(Ear(postgres_url)):
        await ear.lives()
        for payload in ("public.outbox_table", "shop.other", "a.b.c", "x" * 100, "shop.outbox_table"):
            await connection.execute("SELECT pg_notify('outbox_channel', $1)", payload)
        await ear.hears("shop.outbox_table")
        # Neither the others', nor probes: its own and those of the second one.
        assert ear.payloads == ["", "shop.outbox_table"]


async def test_a_channel_of_another_name_is_heard(postgres_url: str, connection: Any) -> None:
    async with running(Ear(postgres_url, channel='My "own" channel')) as ear:
        await ear.lives()
        await connection.execute("SELECT pg_notify($1, 'outbox_table')", 'My "own" channel')
        await ear.hears("outbox_table")


async def test_it_hears_again_after_its_session_was_ended(
    postgres_url: str, connection: Any, said: Said
) -> None:
    async with running(Ear(postgres_url, name="the-ear")) as ear:
        await ear.lives()
        ear.payloads.clear()
        ended = await connection.fetchval(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name = 'the-ear'"
        )
        assert ended == 1
        await ear.hears("")
        await ear.lives()
        await connection.execute(ANNOUNCE)
        await ear.hears("public.outbox_table")
    assert said.to_people == [
        "INFO LISTEN hears",
        "WARNING LISTEN is dead: the connection was lost; polling every 10 s until it recovers",
        "INFO LISTEN hears again",
    ]


async def test_a_database_that_is_not_there_is_said_once(said: Said) -> None:
    async with running(Ear("postgresql://app:s3cret@no-such-host.invalid/shop")) as ear:
        await said.often("DEBUG LISTEN is still dead", 3)
    (warning,) = said.to_people
    assert warning.startswith("WARNING LISTEN is dead: Postgres no-such-host.invalid:5432/shop (user app): ")
    assert "s3cret" not in "".join(said.lines)
    assert ear.payloads == []


async def test_no_connection_to_spare_for_a_probe_does_not_make_it_deaf(
    postgres_url: str, services: Services, connection: Any, said: Said
) -> None:
    async with running(Ear(postgres_url)) as ear:
        await ear.lives()
        with psycopg.connect(services.postgres.url, autocommit=True) as elsewhere:
            name = sql.Identifier(urlsplit(postgres_url).path[1:])
            elsewhere.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS false").format(name))
        await said.often("DEBUG probing over the listening connection", 3)
        await connection.execute(ANNOUNCE)
        await ear.hears("public.outbox_table")
        assert ear.listening.is_alive
    assert said.to_people == ["INFO LISTEN hears"]


async def test_behind_pgbouncer_in_transaction_mode_it_says_once_that_it_hears_nothing_and_recovers(
    postgres_url: str, connection: Any, said: Said
) -> None:
    with PgBouncer(postgres_url) as pooler:
        pooler.start("transaction")
        async with running(Ear(pooler.url, DEAF)) as ear:
            await said.often("DEBUG LISTEN is still dead", 2)
            assert said.to_people == [
                "WARNING LISTEN is dead: its own notification was not heard within 1 s; "
                "polling every 10 s until it recovers; "
                "behind PgBouncer use session pooling or a direct URL"
            ]
            assert not ear.listening.is_alive
            assert ear.payloads == []

            pooler.stop()
            pooler.start("session")
            await ear.lives()
            await connection.execute(ANNOUNCE)
            await ear.hears("public.outbox_table")
    assert said.to_people[1:] == ["INFO LISTEN hears again"]


async def test_a_probe_over_the_listening_connection_itself_would_not_notice_pgbouncer(
    postgres_url: str,
) -> None:
    """Why a probe takes a second connection."""
    with PgBouncer(postgres_url) as pooler:
        pooler.start("transaction")
        heard = asyncio.Event()
        connection = await Database(pooler.url, pooled=True).connect()
        await connection.add_listener("c", lambda *_: heard.set())
        await connection.execute("NOTIFY c")
        await until(heard.is_set, "the echo within the same transaction")
        await connection.close()
