"""`outbox emit` into a real table."""

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest

from outbox import schema
from tests.integration.commanding import Told, outbox_beside


@pytest.fixture
async def table(postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(postgres_url)
    await schema.create(connection)
    yield connection
    await connection.close()


async def emit(url: str, *arguments: str, body: str | None = None) -> Told:
    return await outbox_beside("emit", *arguments, answer=body, OUTBOX_DATABASE_URL=url)


async def the_row(table: asyncpg.Connection) -> asyncpg.Record:
    [row] = await table.fetch("SELECT *, send_after - created_at AS due_in FROM outbox_table")
    return row


async def test_a_message_is_in_the_table_and_its_id_is_printed(
    table: asyncpg.Connection, postgres_url: str
) -> None:
    told = await emit(postgres_url, "order.placed", '{"id": 1.10}')
    row = await the_row(table)
    assert (told.status, told.output, told.errors) == (0, f"{row['message_id']}\n", "")
    assert (row["routing_key"], row["body"], row["content_type"]) == (
        "order.placed",
        b'{"id": 1.10}',
        "application/json",
    )


async def test_json_has_the_id(table: asyncpg.Connection, postgres_url: str) -> None:
    told = await emit(postgres_url, "order.placed", "1", "-o", "json")
    row = await the_row(table)
    assert json.loads(told.output) == {"message_id": str(row["message_id"]), "routing_key": "order.placed"}


async def test_a_body_comes_from_stdin_or_from_a_file(
    table: asyncpg.Connection, postgres_url: str, tmp_path: Path
) -> None:
    (tmp_path / "picture").write_bytes(b"\x00\xff")
    assert (await emit(postgres_url, "a", "-", body="[1, 2]\n")).status == 0
    assert (await emit(postgres_url, "b", f"@{tmp_path / 'picture'}")).status == 0
    assert (await emit(postgres_url, "c", "hello", "--content-type", "text/plain")).status == 0
    rows = await table.fetch("SELECT body, content_type FROM outbox_table ORDER BY id")
    assert [tuple(row) for row in rows] == [
        (b"[1, 2]\n", "application/json"),
        (b"\x00\xff", "application/octet-stream"),
        (b"hello", "text/plain"),
    ]


async def test_options_are_those_of_emit(table: asyncpg.Connection, postgres_url: str) -> None:
    told = await emit(
        *(postgres_url, "order.placed", "hello", "--ordering-key", "order-1", "--expiration", "5m"),
        *("-H", "colour=red", "--header", "sum=1=1", "--eta", "1h30m"),
    )
    row = await the_row(table)
    assert told.status == 0
    assert row["body"] == b'"hello"'
    assert row["ordering_key"] == "order-1"
    assert row["expiration"] == timedelta(minutes=5)
    assert json.loads(row["headers"]) == {"colour": "red", "sum": "1=1"}
    assert row["due_in"] // timedelta(minutes=1) == 90


async def test_a_moment_may_be_given(table: asyncpg.Connection, postgres_url: str) -> None:
    assert (await emit(postgres_url, "order.placed", "1", "--eta", "2030-12-24T18:00:00Z")).status == 0
    assert (await the_row(table))["send_after"].isoformat() == "2030-12-24T18:00:00+00:00"


async def test_a_timer_that_is_pending_is_told_and_may_be_moved(
    table: asyncpg.Connection, postgres_url: str
) -> None:
    timer = ("order.remind", "1", "--timer-id", "order-1")
    assert (await emit(postgres_url, *timer, "--delay", "1h")).status == 0
    again = await emit(postgres_url, *timer, "--delay", "2h")
    assert (again.status, again.output, again.errors) == (
        1,
        "",
        'outbox: timer "order-1" of order.remind is pending already, and nothing was emitted; '
        "pass --replace to move it\n",
    )
    assert (await emit(postgres_url, *timer, "--delay", "2h", "--replace")).status == 0
    left = await table.fetchval("SELECT send_after - now() FROM outbox_table")
    assert timedelta(hours=1) < left <= timedelta(hours=2)


async def test_a_missing_table_is_one_line_with_the_cure(postgres_url: str) -> None:
    told = await emit(postgres_url, "order.placed", "1")
    assert (told.status, told.output, told.errors) == (
        1,
        "",
        'outbox: relation "outbox_table" does not exist; run `outbox schema create`, '
        "or name the table with --table\n",
    )


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("k" * 256, "1"), "routing_key has 256 bytes, more than the 255 of AMQP; "),
        (("a", "1", "-H", "colour"), "header 'colour' has no value; write NAME=VALUE"),
        (("a", "1", "--eta", "soon"), "'soon' is not a duration: write whole numbers with h, m, s or ms, "),
        (("a", "1", "--replace"), "--replace moves a pending timer; name it with --timer-id"),
        (("a", "@nowhere"), "file 'nowhere' cannot be read: No such file or directory; correct the name, "),
        (("a", "1", "--table", "a.b.c"), "table name 'a.b.c' has 3 parts; "),
    ],
)
async def test_what_cannot_be_emitted_is_one_line_and_nothing_is_there(
    table: asyncpg.Connection, postgres_url: str, arguments: tuple[str, ...], line: str
) -> None:
    told = await emit(postgres_url, *arguments)
    assert told.status == 1
    assert told.errors.startswith(f"outbox: {line}")
    assert told.errors.count("\n") == 1
    assert await table.fetchval("SELECT count(*) FROM outbox_table") == 0
