"""What every driver can do, in an awaited and in a plain form."""

from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypeAlias

from outbox.drivers.statement import Statement

Row: TypeAlias = tuple[Any, ...]


class SyncDriver(Protocol):
    """Sends statements on a session whose calls block."""

    is_async: Literal[False]

    def execute(self, session: Any, statement: Statement, args: Sequence[Any]) -> int:
        """Send the statement, and tell how many rows it touched."""

    def fetch(self, session: Any, statement: Statement, args: Sequence[Any]) -> list[Row]:
        """Send the statement, and read the rows it returns."""

    def autocommits(self, session: Any) -> bool:
        """Tell whether a statement on the session is committed by itself, asked after one was sent."""


class AsyncDriver(Protocol):
    """Sends statements on a session whose calls are awaited."""

    is_async: Literal[True]

    async def execute(self, session: Any, statement: Statement, args: Sequence[Any]) -> int:
        """Send the statement, and tell how many rows it touched."""

    async def fetch(self, session: Any, statement: Statement, args: Sequence[Any]) -> list[Row]:
        """Send the statement, and read the rows it returns."""

    def autocommits(self, session: Any) -> bool:
        """Tell whether a statement on the session is committed by itself, asked after one was sent."""


Driver: TypeAlias = SyncDriver | AsyncDriver
