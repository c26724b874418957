"""The databases of relays, looked at no more often than is useful."""

import time
from dataclasses import dataclass, field

from outbox_operator.database import look
from outbox_operator.database_view import DatabaseView
from outbox_operator.resources import OutboxRelay
from outbox_operator.service_hosts import seen_from_elsewhere


@dataclass(frozen=True, slots=True)
class _Sight:
    asked: tuple[str, object] = field(repr=False)
    at: float
    view: DatabaseView


class Databases:
    """Looks at the databases of relays, not more often than is useful."""

    def __init__(self, interval_seconds: float) -> None:
        # A little less, for a look that is asked for after the interval must not find itself too early.
        self._interval_seconds = interval_seconds * 0.9
        self._sights: dict[str, _Sight] = {}

    async def look(self, relay: OutboxRelay, url: str) -> DatabaseView:
        path, database = relay.metadata.path, relay.spec.database
        asked = (url, database)
        known = self._sights.get(path)
        if known and known.asked == asked and time.monotonic() - known.at < self._interval_seconds:
            return known.view
        view = await look(seen_from_elsewhere(url, relay.metadata.namespace), database)
        self._sights[path] = _Sight(asked, time.monotonic(), view)
        return view

    def forget(self, path: str) -> None:
        self._sights.pop(path, None)
