"""What applications have emitted, read by a connection of the test's own."""

import asyncio
import json
from typing import Any

import asyncpg


async def rows_of(database: asyncpg.Connection, table: str = "outbox_table") -> list[asyncpg.Record]:
    rows: list[asyncpg.Record] = await database.fetch(f"SELECT * FROM {table} ORDER BY id")
    return rows


async def bodies_of(database: asyncpg.Connection) -> list[Any]:
    return [json.loads(row["body"]) for row in await rows_of(database)]


class Abort(Exception):
    """What the application raises to roll back."""


async def until_a_statement_waits(database: asyncpg.Connection, count: int = 1) -> None:
    """Wait until so many sessions wait for a lock."""
    waiting = (
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )
    async with asyncio.timeout(20):
        while await database.fetchval(waiting) < count:
            await asyncio.sleep(0.01)
