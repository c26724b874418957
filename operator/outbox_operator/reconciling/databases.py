"""The databases of relays, looked at no more often than is useful."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from outbox.table import TableName
from outbox_core.backoff import Backoff
from outbox_core.horizon_holder import Hold, followed
from outbox_operator import database_findings as findings
from outbox_operator.database_access import DatabaseAccess
from outbox_operator.database_view import DatabaseView
from outbox_operator.faults import Faults
from outbox_operator.resources import OutboxRelay
from outbox_operator.resources.relay import Database
from outbox_operator.service_hosts import seen_from_elsewhere

Look: TypeAlias = Callable[[DatabaseAccess, Database], Awaitable[DatabaseView]]
"""One look at a database."""

_PROBES = Backoff(0.5, 5.0)
"""Between looks at a database that will not do: often it is just starting, or somebody is just mending it."""

_SHARE = 3.0
"""How much longer than a failed look the pause after it is at least."""

_EARLY = 0.9
"""The part of a pause after which a look is not too early: a timer may be a little fast."""


@dataclass(frozen=True, slots=True)
class _Sight:
    asked: tuple[DatabaseAccess, object] = field(repr=False)
    at: float
    view: DatabaseView
    failures: int
    """How often in a row it would not do."""
    pause_seconds: float
    """How long to wait before another look."""
    hold: Hold | None
    """The horizon of vacuum that stays where it is."""


class Databases:
    """Looks at the databases of relays, not more often than is useful."""

    def __init__(
        self,
        look: Look,
        interval_seconds: float,
        faults: Faults,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._look = look
        self._interval_seconds = interval_seconds
        self._faults = faults
        self._clock = clock
        self._sights: dict[str, _Sight] = {}

    async def look(self, relay: OutboxRelay, entered: DatabaseAccess) -> DatabaseView:
        path, database = relay.metadata.path, relay.spec.database
        asked = (entered, database)
        known = self._sights.get(path)
        if known and known.asked != asked:
            known = None
        if known and self._clock() - known.at < known.pause_seconds * _EARLY:
            return known.view
        view, began = DatabaseView((findings.FAILED,)), self._clock()
        with self._faults.contained("database", path):
            url = seen_from_elsewhere(entered.url, relay.metadata.namespace)
            view = await self._look(replace(entered, url=url), database)
        failures = 0 if view.is_ready else (known.failures if known else 0) + 1
        now = self._clock()
        pause = (
            min(_probe_seconds(failures, now - began), self._interval_seconds)
            if failures
            else self._interval_seconds
        )
        hold = followed(known.hold if known else None, view.holder, now)
        if hold and hold.is_long(now):
            vacuum = findings.vacuum_held(hold.holder, TableName.parse(database.table))
            view = replace(view, vacuum=vacuum)
        self._sights[path] = _Sight(asked, now, view, failures, pause, hold)
        return view

    def pause_seconds(self, path: str) -> float:
        """How long to wait before another look at the database of this relay."""
        known = self._sights.get(path)
        return known.pause_seconds if known else self._interval_seconds

    def forget(self, path: str) -> None:
        self._sights.pop(path, None)


def _probe_seconds(failures: int, took_seconds: float) -> float:
    """Until the next look at a database that will not do: a slow failure costs more than a quick one."""
    return max(_PROBES.delay(failures), _SHARE * took_seconds)
