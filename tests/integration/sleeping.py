"""A session that is to a table what a sleeping relay is: whoever emits notifies."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from outbox import schema


async def try_to_sleep(connection: Any, table: str = "outbox_table") -> bool:
    """Take the lock that a relay of this table holds while it sleeps, unless somebody has it."""
    key = f"{schema.ASLEEP_LOCK}, '{table}'::regclass::oid::int4"
    return bool(await connection.fetchval(f"SELECT pg_try_advisory_lock({key})"))


@asynccontextmanager
async def asleep(url: str, table: str = "outbox_table") -> AsyncIterator[None]:
    """Somebody sleeps until the end of the block."""
    connection = await asyncpg.connect(url)
    try:
        assert await try_to_sleep(connection, table)
        yield
    finally:
        await connection.close()
