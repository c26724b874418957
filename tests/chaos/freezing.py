"""Stopping a relay in the middle of a batch."""

import asyncio
import signal

import asyncpg

from tests.chaos.application import Application
from tests.chaos.process import Process


async def locked_rows(database: asyncpg.Connection) -> int:
    """How many rows somebody has claimed at the moment."""
    async with database.transaction():
        count: int = await database.fetchval(
            "WITH free AS MATERIALIZED (SELECT id FROM outbox_table FOR UPDATE SKIP LOCKED)"
            " SELECT count(*) FROM outbox_table WHERE id NOT IN (SELECT id FROM free)"
        )
    return count


async def freeze_in_a_batch(
    relay: Process,
    application: Application,
    database: asyncpg.Connection,
    wait_event: str = "ClientRead",
    *,
    pooled: bool = False,
) -> int:
    """SIGSTOP a relay while the server waits for it with rows locked; how many rows anybody has locked.

    Whether for its next statement (ClientRead) or for it to read the rows (ClientWrite). The application
    gives it something to do by one large transaction a try. Behind a pooler (`pooled`) the server does not
    know whom it waits for: the relay must be the only one.
    """
    for attempt in range(200):
        await application.emit(1)
        await asyncio.sleep(attempt % 7 * 0.005)
        relay.send(signal.SIGSTOP)
        # What was already on its way to the server comes to its end.
        await asyncio.sleep(0.1)
        ports = None if pooled else relay.client_ports()
        if await _in_transaction(database, ports, wait_event) and (count := await locked_rows(database)):
            return count
        relay.send(signal.SIGCONT)
    raise AssertionError("the relay was never caught in the middle of a batch")


async def _in_transaction(database: asyncpg.Connection, ports: list[int] | None, wait_event: str) -> bool:
    """Whether the server waits for a relay at these ports, in this way, in the middle of a transaction."""
    count: int = await database.fetchval(
        "SELECT count(*) FROM pg_stat_activity WHERE ($1::integer[] IS NULL OR client_port = ANY ($1))"
        " AND datname = current_database() AND application_name = 'outbox-relay'"
        " AND xact_start IS NOT NULL AND wait_event = $2",
        ports,
        wait_event,
    )
    return count > 0
