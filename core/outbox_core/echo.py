"""A notification to ourselves: the proof that LISTEN hears.

It is sent over *another* connection. One sent over the listening connection itself comes back within its own
transaction, where even a pooler in transaction mode lets it through.
"""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import asyncpg

from outbox.table import quote_literal
from outbox_core.database import Database, DatabaseError

_PREFIX = "?outbox-probe "
"""How our payloads begin. No table's name does, as the trigger quotes it."""

CONTROL_PREFIX = f"{_PREFIX}for relays: "
"""How payloads begin by which relays talk to each other. To older ones they are probes, which they ignore."""

_CLOSE_SECONDS = 2.0

_log = logging.getLogger("outbox.listening")


class DeafError(DatabaseError):
    """LISTEN succeeded, and hears nothing."""


class Echo:
    """Probes of one channel, sent and awaited."""

    def __init__(self, database: Database, channel: str, name: str, limit_seconds: float) -> None:
        """`name` is what `pg_stat_activity` shows; the limit is for each word from the server."""
        self._database = database
        self._channel = channel
        self._name = name
        self._limit_seconds = limit_seconds
        self._awaited: dict[str, asyncio.Event] = {}

    def takes(self, payload: str) -> bool:
        """Whether the payload is a probe, ours or that of somebody else on the channel."""
        if payload in self._awaited:
            self._awaited[payload].set()
        return payload.startswith(_PREFIX)

    def let_go(self) -> None:
        """The listener is gone: nobody has to wait any longer for a probe to be heard."""
        for heard in self._awaited.values():
            heard.set()

    async def prove(self, listener: Callable[[str], Awaitable[Any]] | None = None) -> None:
        """Send a probe and wait until it is heard, or until `let_go`; raise where it is not.

        Where no other connection can be had, it is sent by `listener`, which was proven before: others having
        taken every connection is no reason to give up the one we have.
        """
        payload = f"{_PREFIX}{uuid.uuid4()}"
        heard = self._awaited[payload] = asyncio.Event()
        try:
            await self._send(payload, listener)
            await self._hear(heard)
        finally:
            del self._awaited[payload]

    async def _send(self, payload: str, listener: Callable[[str], Awaitable[Any]] | None) -> None:
        statement = f"SELECT pg_catalog.pg_notify({quote_literal(self._channel)}, {quote_literal(payload)})"
        try:
            other = await self._database.connect(self._name, prepared=False)
        except DatabaseError as error:
            if listener is None:
                raise
            _log.debug("probing over the listening connection itself: %s", error)
            await listener(statement)
            return
        try:
            await other.execute(statement, timeout=self._limit_seconds)
        finally:
            with suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
                await other.close(timeout=_CLOSE_SECONDS)

    async def _hear(self, heard: asyncio.Event) -> None:
        try:
            async with asyncio.timeout(self._limit_seconds):
                await heard.wait()
        except TimeoutError:
            raise DeafError(f"its own notification was not heard within {self._limit_seconds:g} s") from None
