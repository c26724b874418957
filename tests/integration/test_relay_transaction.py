"""Transactions that follow each other, and what they cost in round trips."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from outbox_relay.transaction import BEGIN, Transaction


@pytest.fixture
async def connection(postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(postgres_url)
    await connection.execute("CREATE TABLE numbers (n integer)")
    yield connection
    await connection.close()


async def test_the_end_of_one_begins_the_next_without_a_round_trip(connection: asyncpg.Connection) -> None:
    transaction = Transaction(connection)
    sent: list[str] = []
    with connection.query_logger(lambda record: sent.append(record.query)):
        await transaction.begin()
        await transaction.end("INSERT INTO numbers VALUES (1); COMMIT", and_begin=True)
        assert connection.is_in_transaction()
        await transaction.begin()
        await transaction.end("INSERT INTO numbers VALUES (2); COMMIT", and_begin=False)
    assert not connection.is_in_transaction()
    await asyncio.sleep(0)  # asyncpg tells of a query in the loop's next turn
    assert sent == [
        BEGIN,
        f"INSERT INTO numbers VALUES (1); COMMIT; {BEGIN}",
        "INSERT INTO numbers VALUES (2); COMMIT",
    ]


async def test_what_one_has_committed_stays_when_the_next_is_rolled_back(
    connection: asyncpg.Connection,
) -> None:
    transaction = Transaction(connection)
    await transaction.begin()
    await transaction.end("INSERT INTO numbers VALUES (1); COMMIT", and_begin=True)
    await connection.execute("INSERT INTO numbers VALUES (2)")
    await transaction.roll_back()
    assert not connection.is_in_transaction()
    assert [row["n"] for row in await connection.fetch("SELECT n FROM numbers")] == [1]


async def test_a_script_that_fails_commits_nothing_and_can_be_rolled_back(
    connection: asyncpg.Connection,
) -> None:
    transaction = Transaction(connection)
    await transaction.begin()
    with pytest.raises(asyncpg.UndefinedTableError):
        await transaction.end("INSERT INTO numbers VALUES (1); DELETE FROM letters; COMMIT", and_begin=True)
    await transaction.roll_back()
    await transaction.begin()
    assert await connection.fetchval("SELECT count(*) FROM numbers") == 0
    await transaction.roll_back()


async def test_rolling_back_on_a_connection_that_is_gone_is_no_error(connection: asyncpg.Connection) -> None:
    transaction = Transaction(connection)
    await transaction.begin()
    connection.terminate()
    await transaction.roll_back()
