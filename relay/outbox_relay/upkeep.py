"""What the relay does beside the traffic: the backlog, vacuum, and what was kept long enough."""

import asyncio
import logging
import math
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import timedelta
from typing import Any

from outbox import schema
from outbox.table import TableName
from outbox_core import backlog
from outbox_core.database import Database
from outbox_relay.metrics import Metrics
from outbox_relay.progress import Progress
from outbox_relay.queries import Queries
from outbox_relay.retention import Retention
from outbox_relay.settings import Settings
from outbox_relay.vacuum import VacuumWatch

_log = logging.getLogger("outbox.relay")

_BACKLOG_SECONDS = 15.0
_IDLE_SECONDS = 60.0
"""The same when nothing was due the last time, and no lane has looked for anything since."""
_MEASURES_A_SWEEP = 20
"""Every so many measurements one begins at the oldest entry of the index, dead or not."""
_RETENTION_SECONDS = 30.0
_CHECK_SECONDS = 300.0


class Upkeep:
    """Looks after the table on a connection of its own."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        queries: Queries,
        metrics: Metrics,
        settled: Callable[[], int],
        *,
        is_idle: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`settled` returns how many rows the relay has ever settled; `is_idle`, whether no lane looks."""
        self._table = TableName.parse(settings.table_name)
        self._channel = settings.channel
        self._notifies = settings.notifies
        self._database = database
        self._queries = queries
        self._metrics = metrics
        kept = settings.clean_up_after
        self._retention = Retention(kept if isinstance(kept, timedelta) else None, settings.parked_retention)
        self._next_retention = 0.0
        self._next_check = 0.0
        self._next_measure = 0.0
        self._measures = 0
        self._seen_until = -math.inf
        self._settled = settled
        self._is_idle = is_idle
        self._progress = Progress()
        self._clock = clock
        self._vacuum = VacuumWatch(self._table, metrics, clock)
        self._stalled: str | None = None
        self._wrong: str | None = None

    @property
    def problem(self) -> str | None:
        """Why messages do not leave the table; None if they do."""
        return self._wrong or self._stalled

    async def run(self) -> None:
        """Look after the table until cancelled; without a database it waits for one."""
        connection: Any = None
        try:
            while True:
                try:
                    if connection is None:
                        connection = await self._database.connect("outbox-relay-upkeep")
                    if self._clock() >= self._next_measure or not self._is_idle():
                        await self.run_once(connection)
                except Exception as error:
                    if not self._database.is_passing(error):
                        raise
                    # The lanes say that the database is away; once is enough.
                    _log.debug("upkeep has lost %s: %s", self._database.where, error)
                    _end(connection)
                    connection = None
                await asyncio.sleep(_BACKLOG_SECONDS)
        finally:
            _end(connection)

    async def run_once(self, connection: Any) -> None:
        """Measure once, and delete what is old enough where it is time for that."""
        async with self._transaction(connection):
            measured = await backlog.measure(connection, self._table, self._seen_until)
        self._measures += 1
        is_anew = self._measures % _MEASURES_A_SWEEP == 0
        self._seen_until = -math.inf if is_anew else measured.seen_until
        # Not before the loop comes by again.
        pause = _BACKLOG_SECONDS if measured.due else _IDLE_SECONDS
        self._next_measure = self._clock() + pause - _BACKLOG_SECONDS / 2
        self._metrics.backlog(measured.due, measured.oldest_seconds, measured.parked)
        self._stalled = self._progress.measured(measured, self._settled(), self._clock())
        if self._stalled and not await self._is_any_claimable(connection):
            # All of them wait behind the first row of their key, which is parked or not due yet.
            self._progress, self._stalled = Progress(), None
        await self._vacuum.run_once(connection, measured.dead_rows)
        if self._clock() >= self._next_retention:
            self._next_retention = self._clock() + _RETENTION_SECONDS
            deleted = await self._retention.run_once(connection, self._queries)
            if deleted:
                _log.info("retention deleted %d messages", deleted)
        if self._clock() >= self._next_check:
            self._next_check = self._clock() + _CHECK_SECONDS
            await self._check(connection)

    async def _is_any_claimable(self, connection: Any) -> bool:
        async with self._transaction(connection):
            row = await connection.fetchrow(self._queries.claimable)
        is_any: bool = row["is_any"]
        return is_any

    async def _check(self, connection: Any) -> None:
        """Look whether the table still is what the relay needs: rows that a policy hides are not even due."""
        async with self._transaction(connection):
            problems = await schema.check(connection, self._table, self._channel, notify=self._notifies)
        self._wrong = "; ".join(str(problem) for problem in problems if problem.stops_relay) or None

    def _transaction(self, connection: Any) -> AbstractAsyncContextManager[Any]:
        # One statement needs none, unless a pooler may give each of its steps another session.
        if self._database.pooled:
            return connection.transaction(isolation="read_committed")  # type: ignore[no-any-return]
        return nullcontext()


def _end(connection: Any) -> None:
    if connection is not None:
        connection.terminate()
