"""How much waits in a live table, as the relay's metrics and the operator's status tell it."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import asyncpg
import pytest

from outbox import schema
from outbox.table import TableName
from outbox_core.backlog import Backlog, measure


@pytest.fixture
async def database(postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(postgres_url)
    await schema.create(connection)
    yield connection
    await connection.close()


async def insert(database: asyncpg.Connection, count: int = 1, **columns: str) -> None:
    """Rows in which each of these columns is an SQL expression."""
    given = {"routing_key": "'a'", "body": "''", **columns}
    await database.execute(
        f"INSERT INTO outbox_table ({', '.join(given)}) SELECT {', '.join(given.values())} "
        f"FROM generate_series(1, {count})"
    )


async def measured(database: asyncpg.Connection) -> Backlog:
    return await measure(database, TableName.parse("outbox_table"))


async def test_the_backlog_is_exact_up_to_ten_thousand(database: asyncpg.Connection) -> None:
    assert await measured(database) == Backlog(due=0, oldest_seconds=0.0, parked=0)
    await insert(database, 9_990)
    await insert(database, 10, ordering_key="'k'")
    await insert(database, 5, send_after="now() + interval '1 hour'")
    await insert(database, 5, sent_at="now()")
    await insert(database, 7, parked_at="now()")
    found = await measured(database)
    assert (found.due, found.parked) == (10_000, 7)


async def test_the_backlog_is_an_estimate_beyond_ten_thousand(database: asyncpg.Connection) -> None:
    await insert(database, 30_000)
    # Without statistics all that is known is that there are more.
    assert (await measured(database)).due > 10_000
    await database.execute("ANALYZE outbox_table")
    assert 20_000 < (await measured(database)).due < 40_000


async def test_the_backlogs_age_is_that_of_its_oldest_message(database: asyncpg.Connection) -> None:
    await insert(database)
    assert (await measured(database)).oldest_seconds < 3600
    await insert(database, send_after="now() - interval '2 hours'", ordering_key="'k'")
    assert (await measured(database)).oldest_seconds >= 7200
    await insert(database, send_after="'-infinity'")
    assert (await measured(database)).oldest_seconds == float("inf")


async def test_the_moment_of_the_oldest_message_does_not_move_while_it_waits(
    database: asyncpg.Connection,
) -> None:
    await insert(database, send_after="'2024-02-29T12:00:00Z'")
    await insert(database, send_after="'2024-03-01T12:00:00Z'", ordering_key="'k'")
    assert (await measured(database)).oldest_at == datetime(2024, 2, 29, 12, tzinfo=UTC)
    await insert(database, send_after="'-infinity'")
    assert (await measured(database)).oldest_at == datetime.min.replace(tzinfo=UTC)
