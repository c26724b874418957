"""asyncpg connections, and those that a pool lends."""

from collections.abc import Sequence
from typing import Any, Literal

from outbox.drivers.driver import Row
from outbox.drivers.statement import Statement


class AsyncpgConnection:
    is_async: Literal[True] = True

    async def execute(self, session: Any, statement: Statement, args: Sequence[Any]) -> int:
        status: str = await session.execute(statement.dollar, *args)
        count = status.rpartition(" ")[2]
        return int(count) if count.isdigit() else 0

    async def fetch(self, session: Any, statement: Statement, args: Sequence[Any]) -> list[Row]:
        return [tuple(record) for record in await session.fetch(statement.dollar, *args)]

    def autocommits(self, session: Any) -> bool:
        return not session.is_in_transaction()
