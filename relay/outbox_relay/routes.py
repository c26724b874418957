"""Which routing keys are held back, because a queue behind them refuses messages or does not confirm them.

A broker does not tell which of several queues has refused a message, and the others have it already: each
further attempt is another copy for them. And a message that a queue does not take stops all that is behind it
on its channel. So a closed route sends one message at a time as a probe, at growing intervals, and a confirm
opens it again. No I/O; the clock is passed in.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

Admission: TypeAlias = Literal["send", "probe"] | float

_GROWTH = 4.0
"""How much longer than the interval before each interval between probes is."""

_LONGEST_INTERVAL_SECONDS = 900.0

_MOST_ROUTES = 10_000
"""How many closed routes are remembered: routing keys may be as many as messages."""


@dataclass(slots=True)
class _Closed:
    """A route that is held back."""

    since: float
    refuses: bool
    """A queue refuses messages; otherwise one does not confirm them."""
    interval: float
    next_probe: float


class Routes:
    """The closed routes of one relay."""

    def __init__(
        self, first_seconds: float, longest_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """A message waits from `first_seconds` to `longest_seconds`, and the first probe `first_seconds`."""
        self._first_seconds = first_seconds
        self._longest_seconds = longest_seconds
        self._clock = clock
        self._closed: dict[str, _Closed] = {}

    def __len__(self) -> int:
        return len(self._closed)

    def is_closed(self, routing_key: str) -> bool:
        """Whether its messages are held back."""
        return routing_key in self._closed

    def admit(self, routing_key: str, *, is_first_attempt: bool, may_probe: bool = True) -> Admission:
        """Whether a message is to be sent now, alone as a probe, or has to wait this many seconds.

        A queue that refuses messages holds back no first attempt: the other queues of the route get it, and
        its confirm would show that there is room again.
        """
        closed = self._closed.get(routing_key)
        if closed is None:
            return "send"
        now = self._clock()
        if closed.refuses and is_first_attempt:
            # It shows as much as a probe, and is no further copy.
            closed.next_probe = max(closed.next_probe, now + closed.interval)
            return "send"
        if may_probe and now >= closed.next_probe:
            closed.interval = min(closed.interval * _GROWTH, _LONGEST_INTERVAL_SECONDS)
            closed.next_probe = now + closed.interval
            return "probe"
        # As long again as the route has been closed: in a long time a message is moved only a few times.
        return min(max(now - closed.since, self._first_seconds), self._longest_seconds)

    def confirmed(self, routing_keys: Iterable[str]) -> list[str]:
        """Open the routes of these messages; returns those that were closed."""
        if not self._closed:
            return []
        return [key for key in set(routing_keys) if self._closed.pop(key, None) is not None]

    def refused(self, routing_key: str) -> bool:
        """Close a route of which a queue refuses messages; returns whether it was open."""
        return self._close(routing_key, refuses=True)

    def unconfirmed(self, routing_key: str) -> bool:
        """Close a route of which a queue does not confirm messages; returns whether it was open."""
        return self._close(routing_key, refuses=False)

    def _close(self, routing_key: str, *, refuses: bool) -> bool:
        if (closed := self._closed.get(routing_key)) is not None:
            closed.refuses = refuses
            return False
        if len(self._closed) >= _MOST_ROUTES:
            del self._closed[next(iter(self._closed))]
        now = self._clock()
        self._closed[routing_key] = _Closed(now, refuses, self._first_seconds, now + self._first_seconds)
        return True
