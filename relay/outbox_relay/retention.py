"""Removing what was kept long enough, a bounded batch at a time beside the traffic."""

import asyncio
import math
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from outbox_relay.queries import Queries

_BATCH = 1_000
_PAUSE_SECONDS = 0.05
"""Between two batches, so that retention never has the database to itself."""

_RUNS_A_SWEEP = 120
"""Every so many runs, once an hour, one begins at the oldest row: it finds those that were locked."""


@dataclass(slots=True)
class _Purge:
    """The rows of one state, and how far they are deleted."""

    age: timedelta | None
    floor: float = -math.inf
    """Until when rows are deleted, but for those that somebody had locked; in seconds since 1970."""

    async def run(self, connection: Any, query: str) -> int:
        deleted = 0
        while self.age is not None:
            async with connection.transaction(isolation="read_committed"):
                row = await connection.fetchrow(query, self.age.total_seconds(), _BATCH, self.floor)
            count: int = row["count"]
            deleted += count
            if row["next"] is not None:
                self.floor = row["next"]
            if count < _BATCH:
                break
            await asyncio.sleep(_PAUSE_SECONDS)
        return deleted


@dataclass(slots=True)
class Retention:
    """How long messages stay after they were sent or parked; None for ever."""

    sent: timedelta | None
    parked: timedelta | None
    _purges: tuple[_Purge, _Purge] = field(init=False, repr=False, compare=False)
    _runs: int = field(default=0, init=False, repr=False, compare=False)

    async def run_once(self, connection: Any, queries: Queries) -> int:
        """Delete everything that is old enough by now; tells how many messages that were.

        It goes on where it was the last time, and begins anew once an hour.
        """
        if self._runs % _RUNS_A_SWEEP == 0:
            self._purges = _Purge(self.sent), _Purge(self.parked)
        self._runs += 1
        sent, parked = self._purges
        return await sent.run(connection, queries.purge_sent) + await parked.run(
            connection, queries.purge_parked
        )
