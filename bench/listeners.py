"""What the measured workers do: `python -m outbox_worker bench.listeners:NAME`."""

import asyncio
import os
from typing import Any

import asyncpg

from bench.queue import NAME
from bench.tally import Tally
from outbox import listen

EFFECT = "INSERT INTO effects (body) VALUES ($1)"
_SLEEP_SECONDS = 0.1

_tally = Tally()


@listen("#", queue=NAME)
async def trivial(body: bytes) -> None:
    _tally.note(body)


@listen("#", queue=NAME)
async def nothing(body: bytes) -> None:
    pass


@listen("#", queue=NAME)
async def sleeping(body: bytes) -> None:
    _tally.note(body)
    await asyncio.sleep(_SLEEP_SECONDS)


@listen("#", queue=NAME, exactly_once=True)
async def once(body: bytes, connection: Any) -> None:
    await connection.execute(EFFECT, body)
    _tally.note(body)


class _Pool:
    """Connections as an application would have them, opened at the first use."""

    def __init__(self) -> None:
        self._opening: asyncio.Task[Any] | None = None

    async def get(self) -> Any:
        if self._opening is None:
            self._opening = asyncio.ensure_future(_opened())
        return await self._opening


async def _opened() -> Any:
    return await asyncpg.create_pool(os.environ["OUTBOX_DATABASE_URL"], min_size=1, max_size=10)


_pool = _Pool()


@listen("#", queue=NAME)
async def own_transaction(body: bytes) -> None:
    """The same effect as `once`, at least once."""
    pool = await _pool.get()
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute(EFFECT, body)
    _tally.note(body)
