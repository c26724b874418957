"""What the relay does beside the traffic: measure the backlog, and delete what was kept long enough."""

import asyncio
import logging
import time
from collections.abc import Callable
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

_log = logging.getLogger("outbox.relay")

_BACKLOG_SECONDS = 15.0
_RETENTION_SECONDS = 30.0


class Upkeep:
    """Looks after the table on a connection of its own."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        queries: Queries,
        metrics: Metrics,
        settled: Callable[[], int],
    ) -> None:
        """`settled` returns how many rows the relay has ever settled."""
        self._table = TableName.parse(settings.table_name)
        self._channel = settings.channel
        self._database = database
        self._queries = queries
        self._metrics = metrics
        kept = settings.clean_up_after
        self._retention = Retention(kept if isinstance(kept, timedelta) else None, settings.parked_retention)
        self._next_retention = 0.0
        self._settled = settled
        self._progress = Progress()
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
        async with connection.transaction(isolation="read_committed"):
            measured = await backlog.measure(connection, self._table)
        self._metrics.backlog(measured.due, measured.oldest_seconds, measured.parked)
        self._stalled = self._progress.measured(measured, self._settled(), time.monotonic())
        if time.monotonic() >= self._next_retention:
            self._next_retention = time.monotonic() + _RETENTION_SECONDS
            await self._check(connection)
            deleted = await self._retention.run_once(connection, self._queries)
            if deleted:
                _log.info("retention deleted %d messages", deleted)

    async def _check(self, connection: Any) -> None:
        """Look whether the table still is what the relay needs: rows that a policy hides are not even due."""
        async with connection.transaction(isolation="read_committed"):
            problems = await schema.check(connection, self._table, self._channel)
        self._wrong = "; ".join(str(problem) for problem in problems if problem.stops_relay) or None


def _end(connection: Any) -> None:
    if connection is not None:
        connection.terminate()
