"""Finds what claims have passed by: rows that were committed late, and keys that are no longer held back.

A sweep reads all that is due, from the beginning, on a connection of its own. It follows each time that a
lane has looked at the table, and takes a small part of the time: if there is much to read, it comes less
often.
"""

import asyncio
import json
import logging
import time
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from outbox.table import TableName
from outbox_core.database import Database
from outbox_relay.claims import START, Claims, Position
from outbox_relay.queries import Queries
from outbox_relay.wake import Wake

_log = logging.getLogger("outbox.relay")

SHORTEST_SECONDS = 0.25
"""How often the table is swept at most."""

_PAUSE_FACTOR = 25
"""How many times as long as a query of a sweep took is the pause after it."""

_LONGEST_PAUSE_SECONDS = 60.0
"""A query may also have waited, for a lock that a migration holds or for a server that did not answer."""

_LATE_ROWS = 1_000
_PAGE_ROWS = 5_000

_STATEMENT_SECONDS = 300.0
"""Dead index entries are read at some millions a second."""

_RECONNECT_SECONDS = 1.0
_FAILURES_TO_TELL = 5


def pause_seconds(took_seconds: float) -> float:
    """How long the database is left alone after a query of a sweep that took so long."""
    return min(_PAUSE_FACTOR * took_seconds, _LONGEST_PAUSE_SECONDS)


class Sweep:
    """Sweeps the table after lanes have looked at it."""

    def __init__(
        self,
        *,
        table: TableName,
        database: Database,
        queries: Queries,
        claims: Claims,
        wake: Wake,
        unswept: asyncio.Event,
    ) -> None:
        """`unswept` is set when a lane looks at the table, and when the relay falls asleep."""
        self._table = table
        self._database = database
        self._queries = queries
        self._claims = claims
        self._wake = wake
        self._unswept = unswept

    async def run(self) -> None:
        """Sweep when there is a reason, until cancelled; without a database it waits for one."""
        connection: Any = None
        failures = 0
        try:
            while True:
                await self._unswept.wait()
                await asyncio.sleep(SHORTEST_SECONDS)
                self._unswept.clear()
                try:
                    if connection is None or connection.is_closed():
                        connection = await self._database.connect("outbox-relay-sweep")
                    await self.run_once(connection)
                except Exception as error:
                    if not self._database.is_passing(error):
                        raise
                    failures += 1
                    # If the database is away, the lanes say so.
                    level = logging.WARNING if failures == _FAILURES_TO_TELL else logging.DEBUG
                    _log.log(
                        level,
                        "the table cannot be swept, late commits wait: %s",
                        str(error) or "no answer in time",
                    )
                    self._unswept.set()
                    _end(connection)
                    connection = None
                    await asyncio.sleep(_RECONNECT_SECONDS)
                else:
                    failures = 0
        finally:
            _end(connection)

    async def run_once(self, connection: Any) -> None:
        """Read once all that is due and was passed by."""
        first = self._claims.first
        rows = await self._fetch(connection, self._queries.late, *first.arguments(), _LATE_ROWS)
        if self._claims.passed_by([(row["id"], row["micros"]) for row in rows], _LATE_ROWS):
            self._wake.up("more")
        await self._read_writers(connection)
        after, end = START, self._claims.cursor
        while after < end:
            [page] = await self._fetch(
                connection, self._queries.claimable_keys, *after.arguments(), *end.arguments(), _PAGE_ROWS
            )
            if self._claims.claimable(json.loads(page["keys"] or "{}")):
                self._wake.up("more")
            if page["rows"] < _PAGE_ROWS:
                return
            after = Position.of(page["micros"], page["id"])

    async def _read_writers(self, connection: Any) -> None:
        bounds = self._claims.bounds
        epoch = bounds.begin_epoch()
        rows = await self._fetch(connection, self._queries.writers, self._table.sql)
        bounds.writers(epoch, {row["writer"] for row in rows})

    async def _fetch(self, connection: Any, query: str, *arguments: Any) -> Any:
        began = time.monotonic()
        async with self._transaction(connection):
            rows = await connection.fetch(query, *arguments, timeout=_STATEMENT_SECONDS)
        await asyncio.sleep(pause_seconds(time.monotonic() - began))
        return rows

    def _transaction(self, connection: Any) -> AbstractAsyncContextManager[Any]:
        # One statement needs none, unless a pooler may give each of its steps another session.
        if self._database.pooled:
            return connection.transaction(isolation="read_committed")  # type: ignore[no-any-return]
        return nullcontext()


def _end(connection: Any) -> None:
    if connection is not None:
        connection.terminate()
