"""Watches what keeps vacuum from removing the table's dead rows, and says so once."""

import logging
from collections.abc import Callable
from typing import Any

from outbox.table import TableName
from outbox_core.horizon import oldest_holder
from outbox_core.horizon_holder import MANY_DEAD_ROWS, Hold, Holder, followed
from outbox_core.logs import event
from outbox_relay.metrics import Metrics

_log = logging.getLogger("outbox.relay")

_LOOK_SECONDS = 60.0


class VacuumWatch:
    """Looks for a holder of the horizon once a minute, and only while the table has many dead rows."""

    def __init__(self, table: TableName, metrics: Metrics, clock: Callable[[], float]) -> None:
        self._table = table
        self._metrics = metrics
        self._clock = clock
        self._hold: Hold | None = None
        self._reported: Holder | None = None
        self._next_look = 0.0

    async def run_once(self, connection: Any, dead_rows: int) -> None:
        """Look if it is time, on a connection without a transaction, given how many dead rows there are."""
        now = self._clock()
        if dead_rows < MANY_DEAD_ROWS:
            self._hold, self._next_look = None, now
        elif now >= self._next_look:
            self._next_look = now + _LOOK_SECONDS
            self._hold = followed(self._hold, await oldest_holder(connection), now)
        self._metrics.vacuum(dead_rows, now - self._hold.since if self._hold else 0.0)
        self._report(self._hold.holder if self._hold and self._hold.is_long(now) else None, dead_rows)

    def _report(self, holder: Holder | None, dead_rows: int) -> None:
        reported, self._reported = self._reported, holder
        if reported and not (holder and holder.is_same(reported)):
            event(
                _log,
                logging.INFO,
                "vacuum is no longer held back",
                table=self._table,
                held_by=reported.description,
            )
        if holder and not (reported and holder.is_same(reported)):
            event(
                _log,
                logging.WARNING,
                "vacuum cannot remove dead rows",
                table=self._table,
                dead_rows=dead_rows,
                held_by=holder.description,
                cure=holder.cure,
            )
