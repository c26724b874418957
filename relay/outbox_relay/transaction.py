"""The transaction of a batch. Each round trip to the server costs as much as the work in it."""

from typing import Any

import asyncpg

BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
"""Explicit, since under a database default of SERIALIZABLE a COMMIT may fail after the broker's confirm."""

ROLLBACK_SECONDS = 5.0
CLOSE_SECONDS = 5.0


class Transaction:
    """Transactions that follow each other on one connection."""

    def __init__(self, connection: Any, opening: str = BEGIN) -> None:
        """`opening` is what begins one."""
        self.connection = connection
        self._opening = opening
        self._is_open = False

    async def begin(self) -> None:
        """Begin, unless the end of the last one has begun this one."""
        if not self._is_open:
            await self.connection.execute(self._opening)
            self._is_open = True

    async def end(self, script: str, *, and_begin: bool) -> None:
        """Run a script that commits, and begin the next one with it where that follows at once."""
        await self.connection.execute(f"{script}; {self._opening}" if and_begin else script)
        self._is_open = and_begin

    async def roll_back(self) -> None:
        """Roll back what is open, or end a connection that does not: the server then rolls back by itself."""
        is_open, self._is_open = self._is_open, False
        if not is_open or self.connection.is_closed():
            return
        try:
            await self.connection.execute("ROLLBACK", timeout=ROLLBACK_SECONDS)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError):
            self.connection.terminate()

    async def close(self) -> None:
        """Close the connection; one that does not answer is cut off."""
        try:
            await self.connection.close(timeout=CLOSE_SECONDS)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError):
            self.connection.terminate()
