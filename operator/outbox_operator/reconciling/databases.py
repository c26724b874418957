"""The databases of relays, looked at no more often than is useful."""

import time
from dataclasses import dataclass, field

from outbox_core.backoff import Backoff
from outbox_operator.database import look
from outbox_operator.database_view import DatabaseView
from outbox_operator.resources import OutboxRelay
from outbox_operator.service_hosts import seen_from_elsewhere

_PROBES = Backoff(0.5, 5.0)
"""Between looks at a database that will not do: often it is just starting, or somebody is just mending it."""

_EARLY = 0.9
"""The part of a pause after which a look is not too early: a timer may be a little fast."""


@dataclass(frozen=True, slots=True)
class _Sight:
    asked: tuple[str, object] = field(repr=False)
    at: float
    view: DatabaseView
    failures: int
    """How often in a row it would not do."""
    pause_seconds: float
    """How long to wait before another look."""


class Databases:
    """Looks at the databases of relays, not more often than is useful."""

    def __init__(self, interval_seconds: float) -> None:
        self._interval_seconds = interval_seconds
        self._sights: dict[str, _Sight] = {}

    async def look(self, relay: OutboxRelay, url: str) -> DatabaseView:
        path, database = relay.metadata.path, relay.spec.database
        asked = (url, database)
        known = self._sights.get(path)
        if known and known.asked != asked:
            known = None
        if known and time.monotonic() - known.at < known.pause_seconds * _EARLY:
            return known.view
        view = await look(seen_from_elsewhere(url, relay.metadata.namespace), database)
        failures = 0 if view.is_ready else (known.failures if known else 0) + 1
        pause = min(_PROBES.delay(failures), self._interval_seconds) if failures else self._interval_seconds
        self._sights[path] = _Sight(asked, time.monotonic(), view, failures, pause)
        return view

    def pause_seconds(self, path: str) -> float:
        """How long to wait before another look at the database of this relay."""
        known = self._sights.get(path)
        return known.pause_seconds if known else self._interval_seconds

    def forget(self, path: str) -> None:
        self._sights.pop(path, None)
