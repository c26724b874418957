"""Listeners that came before their relay: whoever applies them may have come no further yet."""

import time
from collections.abc import Callable

from outbox_operator.resources.metadata import Metadata

_QUIET_SECONDS = 2.0
"""How long nobody else has to come: one `kubectl apply` makes a resource after the other."""
_MOST_SECONDS = 30.0
"""How long a listener waits for its relay at most, whoever else comes."""


class Arrivals:
    """Keeps count of the listeners whose relay is not there."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._came: dict[str, float] = {}
        self._last: dict[str, float] = {}

    def patience_seconds(self, listener: Metadata) -> float:
        """How long yet to say nothing of a relay that is not there; 0 where it is time to."""
        now = self._clock()
        if listener.path not in self._came:
            self._came[listener.path] = self._last[listener.namespace] = now
        until = min(
            self._last[listener.namespace] + _QUIET_SECONDS, self._came[listener.path] + _MOST_SECONDS
        )
        return max(until - now, 0.0)

    def forget(self, path: str) -> None:
        """A listener is gone."""
        self._came.pop(path, None)
