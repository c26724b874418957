"""Forgetting what was handled long ago, a bounded batch at a time beside the traffic."""

import asyncio
import logging
from datetime import timedelta

from outbox_worker.transactions import DatabaseAwayError, Transactions

_log = logging.getLogger("outbox.worker")

_INTERVAL_SECONDS = 60.0
_BATCH = 1_000
_PAUSE_SECONDS = 0.05
"""Between two batches, so that this never has the database to itself."""


class Upkeep:
    """Keeps the inbox from growing for ever."""

    def __init__(self, transactions: Transactions, retention: timedelta) -> None:
        self._transactions = transactions
        self._retention = retention

    async def run(self) -> None:
        """Look after the inbox until cancelled; without a database it waits for one."""
        while True:
            try:
                if forgotten := await self.run_once():
                    _log.info("the inbox has forgotten %d messages", forgotten)
            except DatabaseAwayError as error:
                # The listeners say that the database is away; once is enough.
                _log.debug("the inbox is not looked after: %s", error)
            await asyncio.sleep(_INTERVAL_SECONDS)

    async def run_once(self) -> int:
        """Forget everything that is old enough by now; tells how many messages that were."""
        forgotten = 0
        while True:
            count = await self._transactions.purge(self._retention.total_seconds(), _BATCH)
            forgotten += count
            if count < _BATCH:
                return forgotten
            await asyncio.sleep(_PAUSE_SECONDS)
