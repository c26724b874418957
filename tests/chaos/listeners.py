"""What the workers of chaos tests do: `python -m outbox_worker tests.chaos.listeners:NAME`.

`CHAOS_JOURNAL` is the file that calls are noted in; with `CHAOS_TROUBLE` messages fail as their ids say, and
a call takes up to `CHAOS_MOST_SECONDS`.
"""

import asyncio
import os
import random
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg

from outbox import Emitter, listen
from tests.chaos.journal import Journal
from tests.chaos.trouble import DELAYS, failures_of

MARKER = "marker"
"""The routing key of a message that only tells how far its queue is."""

TOPIC = "order.placed"
FOLLOW_UP = "order.confirmed"
EFFECT = "INSERT INTO effects (listener, message_id, follow_up) VALUES ($1, $2, $3)"


class Trouble(Exception):
    """A failure that the message asked for."""


class _Worker:
    """What the listeners of one process share, made at the first call."""

    def __init__(self) -> None:
        self._journal: Journal | None = None
        self._pool: asyncio.Future[Any] | None = None
        self.emitter = Emitter()

    async def call(self, listener: str, routing_key: str, message: Any, attempt: int) -> UUID | None:
        """Note a call and take some time; the message's id, or None for one without any effect."""
        if self._journal is None:
            self._journal = Journal(Path(os.environ["CHAOS_JOURNAL"]))
        message_id = UUID(message.message_id)
        self._journal.note(f"{MARKER}-{listener}" if routing_key == MARKER else listener, message_id, attempt)
        if routing_key == MARKER:
            return None
        longest = float(os.environ.get("CHAOS_MOST_SECONDS", "0.02"))
        await asyncio.sleep(random.uniform(0, longest))  # noqa: S311 - no secret
        if "CHAOS_TROUBLE" in os.environ and attempt <= failures_of(message_id):
            raise Trouble(f"attempt {attempt} was to fail")
        return message_id

    async def pool(self) -> Any:
        """The application's own connections."""
        if self._pool is None:
            self._pool = asyncio.ensure_future(_opened())
        return await self._pool


async def _opened() -> Any:
    return await asyncpg.create_pool(os.environ["OUTBOX_DATABASE_URL"], min_size=1, max_size=3)


_worker = _Worker()


@listen(TOPIC, queue="plain", retry_delays=DELAYS)
async def plain(body: bytes, routing_key: str, message: Any, attempt_count: int) -> None:
    if message_id := await _worker.call("plain", routing_key, message, attempt_count):
        pool = await _worker.pool()
        await pool.execute(EFFECT, "plain", message_id, None)


@listen(TOPIC, queue="once", retry_delays=DELAYS, exactly_once=True)
async def once(body: bytes, routing_key: str, message: Any, attempt_count: int, connection: Any) -> None:
    if message_id := await _worker.call("once", routing_key, message, attempt_count):
        follow_up = await _worker.emitter.emit(connection, FOLLOW_UP, str(message_id))
        await connection.execute(EFFECT, "once", message_id, follow_up)


@listen(TOPIC, queue="deduplicating", retry_delays=DELAYS, deduplicate=True)
async def deduplicating(body: bytes, routing_key: str, message: Any, attempt_count: int) -> None:
    if message_id := await _worker.call("deduplicating", routing_key, message, attempt_count):
        pool = await _worker.pool()
        await pool.execute(EFFECT, "deduplicating", message_id, None)


@listen(TOPIC, queue="ordered", retry_delays=DELAYS, ordered=True)
async def ordered(body: bytes, routing_key: str, message: Any, attempt_count: int) -> None:
    await _worker.call("ordered", routing_key, message, attempt_count)


together = [plain, once, deduplicating]
