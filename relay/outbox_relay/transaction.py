"""The transaction of a batch. Each round trip to the server costs as much as the work in it."""

from typing import Any


class Transaction:
    """Transactions that follow each other on one connection."""

    def __init__(self, connection: Any, opening: str = "BEGIN") -> None:
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
        """Take back what is open; a connection that is gone has done so already."""
        if self._is_open and not self.connection.is_closed():
            await self.connection.execute("ROLLBACK")
        self._is_open = False
