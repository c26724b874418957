"""When the triggers notify while a relay sleeps: once for a statement that brings something due soon."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from outbox import Emitter, schema
from outbox.table import TableName
from tests.integration.sleeping import try_to_sleep

SENTINEL = "the end"


class Ear:
    """What is heard on a channel. A sentinel tells the end, so that nothing is waited for in vain."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self._heard: asyncio.Queue[str] = asyncio.Queue()

    def hear(self, _connection: Any, _pid: int, _channel: str, payload: str) -> None:
        self._heard.put_nowait(payload)

    async def heard_so_far(self) -> list[str]:
        await self.connection.execute(f"NOTIFY outbox_channel, '{SENTINEL}'")
        payloads: list[str] = []
        async with asyncio.timeout(10):
            while (payload := await self._heard.get()) != SENTINEL:
                payloads.append(payload)
        return payloads


@pytest.fixture
async def connection(postgres_url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(postgres_url)
    await schema.create(connection)
    yield connection
    await connection.close()


@pytest.fixture
async def ear(connection: Any, postgres_url: str) -> AsyncIterator[Ear]:
    listening = await asyncpg.connect(postgres_url)
    ear = Ear(listening)
    assert await try_to_sleep(listening)
    await listening.add_listener("outbox_channel", ear.hear)
    yield ear
    await listening.remove_listener("outbox_channel", ear.hear)
    await listening.close()


def insert(send_after: str = "now()", table: str = "outbox_table", rows: int = 1) -> str:
    return (
        f"INSERT INTO {table} (routing_key, body, send_after)"
        f" SELECT 'a', '', {send_after} FROM generate_series(1, {rows})"
    )


@pytest.mark.parametrize(
    ("statement", "heard"),
    [
        (insert(), ["public.outbox_table"]),
        (insert(rows=1000), ["public.outbox_table"]),
        (insert("now() + interval '9 minutes'"), ["public.outbox_table"]),
        (insert("now() + interval '20 minutes'"), []),
        (insert("now() + interval '20 minutes'", rows=1000), []),
        (insert("'infinity'"), []),
        (insert(rows=0), []),
        ("UPDATE outbox_table SET sent_at = now()", []),
        ("DELETE FROM outbox_table", []),
    ],
)
async def test_a_statement_notifies_once_if_something_is_due_soon(
    connection: Any, ear: Ear, statement: str, heard: list[str]
) -> None:
    await connection.execute(statement)
    assert await ear.heard_so_far() == heard


@pytest.mark.parametrize(
    ("before", "change", "heard"),
    [
        ("'infinity'", "send_after = now()", True),
        ("now() + interval '9 minutes'", "send_after = now() + interval '8 minutes'", True),
        ("'infinity'", "send_after = now() + interval '1 hour'", False),
        ("now()", "send_after = now() + interval '1 minute', attempts = 1", False),
        ("now()", "sent_at = now()", False),
        ("now()", "parked_at = now()", False),
        ("now()", "last_error = 'nacked'", False),
    ],
)
async def test_an_update_notifies_if_a_message_is_due_sooner_by_it(
    connection: Any, ear: Ear, before: str, change: str, heard: bool
) -> None:
    await connection.execute(insert(before, rows=3))
    await ear.heard_so_far()
    await connection.execute(f"UPDATE outbox_table SET {change}")
    assert await ear.heard_so_far() == (["public.outbox_table"] if heard else [])


async def test_a_message_taken_out_of_parking_notifies(connection: Any, ear: Ear) -> None:
    await connection.execute(insert())
    await connection.execute("UPDATE outbox_table SET parked_at = now()")
    await ear.heard_so_far()
    await connection.execute("UPDATE outbox_table SET parked_at = NULL")
    assert await ear.heard_so_far() == ["public.outbox_table"]


async def test_a_timer_moved_nearer_by_emit_notifies(connection: Any, ear: Ear) -> None:
    emitter = Emitter()
    async with connection.transaction():
        await emitter.emit(connection, "remind", 1, timer_id="t", eta=timedelta(hours=1))
    assert await ear.heard_so_far() == []
    async with connection.transaction():
        await emitter.emit(connection, "remind", 1, timer_id="t", eta=timedelta(minutes=1), replace=True)
    assert await ear.heard_so_far() == ["public.outbox_table"]


async def test_one_row_that_is_due_among_many_that_are_not_notifies(connection: Any, ear: Ear) -> None:
    due_last = "CASE WHEN generate_series = 100 THEN now() ELSE now() + interval '1 hour' END"
    await connection.execute(insert(due_last, rows=100))
    assert await ear.heard_so_far() == ["public.outbox_table"]


async def test_nothing_is_heard_of_what_is_rolled_back(connection: Any, ear: Ear) -> None:
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute(insert())
    await transaction.rollback()
    assert await ear.heard_so_far() == []


async def test_the_payload_tells_tables_on_one_channel_apart(connection: Any, ear: Ear) -> None:
    await connection.execute('CREATE SCHEMA "Shop"')
    await schema.create(connection, 'Shop."out.box"')
    assert await try_to_sleep(ear.connection, '"Shop"."out.box"')
    await connection.execute(insert(table='"Shop"."out.box"'))
    [payload] = await ear.heard_so_far()
    assert payload == '"Shop"."out.box"'
    assert schema.concerns(payload, TableName.parse('Shop."out.box"'))
    assert not schema.concerns(payload, TableName.parse("outbox_table"))


async def test_a_renamed_table_notifies_under_its_new_name(connection: Any, ear: Ear) -> None:
    await connection.execute("ALTER TABLE outbox_table RENAME TO renamed")
    await connection.execute(insert(table="renamed"))
    assert await ear.heard_so_far() == ["public.renamed"]
