"""Removing what was kept long enough, a bounded batch at a time beside the traffic."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from outbox_relay.queries import Queries

_BATCH = 1_000
_PAUSE_SECONDS = 0.05
"""Between two batches, so that retention never has the database to itself."""


@dataclass(frozen=True, slots=True)
class Retention:
    """How long messages stay after they were sent or parked; None for ever."""

    sent: timedelta | None
    parked: timedelta | None

    @property
    def does_nothing(self) -> bool:
        return self.sent is None and self.parked is None

    async def run_once(self, connection: Any, queries: Queries) -> int:
        """Delete everything that is old enough by now; tells how many messages that were."""
        deleted = 0
        for query, age in ((queries.purge_sent, self.sent), (queries.purge_parked, self.parked)):
            if age is not None:
                deleted += await _purge(connection, query, age)
        return deleted


async def _purge(connection: Any, query: str, age: timedelta) -> int:
    deleted = 0
    while True:
        async with connection.transaction(isolation="read_committed"):
            status: str = await connection.execute(query, age.total_seconds(), _BATCH)
        count = int(status.rpartition(" ")[2])
        deleted += count
        if count < _BATCH:
            return deleted
        await asyncio.sleep(_PAUSE_SECONDS)
