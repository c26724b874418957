"""Which routing keys are held back, because a queue behind them refuses messages or does not confirm them.

A broker does not tell which of several queues has refused a message, and the others have it already: each
further attempt is another copy for them. And a message that a queue does not take stops all that is behind it
on its channel. So a closed route sends one message at a time as a probe, at growing intervals, and a confirm
opens it again. There may be room for one message and not for all that wait: those that were refused before
follow a few at a time, two for each confirm, until one is refused again. No I/O; the clock is passed in.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

Admission: TypeAlias = Literal["send", "probe"] | float

_GROWTH = 4.0
"""How much longer than the interval before each interval between probes is."""

_SHORTEST_REFUSED_SECONDS = 0.5
"""The first interval where a queue refuses messages, as each probe is a copy for the others."""

_LONGEST_INTERVAL_SECONDS = 900.0

_FOLLOWING = 2
"""How many messages that were refused before may follow each one that is confirmed."""

_REOPENING_SECONDS = 60.0
"""For how long they follow a few at a time, unless so many may follow that it makes no difference."""

_MOST_FOLLOWING = 1_000

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


@dataclass(slots=True)
class _Reopening:
    """A route of which a queue refused messages a short time ago."""

    until: float
    next_at: float
    """When one may be sent though no confirm has come."""
    may_follow: int = 0
    """How many of the messages that were refused may be sent now."""


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
        self._reopening: dict[str, _Reopening] = {}
        """In the order in which they were opened, and so of their ends."""

    def __len__(self) -> int:
        return len(self._closed)

    def __bool__(self) -> bool:
        """Whether there is a route that does not send everything."""
        return bool(self._closed or self._reopening)

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
            return "send" if is_first_attempt else self._follow(routing_key)
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

    def _follow(self, routing_key: str) -> Admission:
        """Whether a message that was refused before may be sent on an open route."""
        reopening = self._reopening.get(routing_key)
        if reopening is None:
            return "send"
        now = self._clock()
        if reopening.may_follow == 0 and now < reopening.next_at:
            return self._first_seconds
        reopening.may_follow = max(0, reopening.may_follow - 1)
        reopening.next_at = now + _SHORTEST_REFUSED_SECONDS
        return "send"

    def confirmed(self, routing_keys: Iterable[str]) -> list[str]:
        """Open the routes of these messages; returns those that were closed."""
        now, opened = self._clock(), list[str]()
        self._forget_reopened(now)
        for key, count in Counter(routing_keys).items():
            if (closed := self._closed.pop(key, None)) is not None:
                opened.append(key)
                if closed.refuses:
                    self._reopening[key] = _Reopening(now + _REOPENING_SECONDS, now)
            if (reopening := self._reopening.get(key)) is not None:
                reopening.may_follow += _FOLLOWING * count
                if reopening.may_follow > _MOST_FOLLOWING:
                    del self._reopening[key]
        return opened

    def _forget_reopened(self, now: float) -> None:
        while self._reopening:
            key, first = next(iter(self._reopening.items()))
            if first.until > now and len(self._reopening) < _MOST_ROUTES:
                return
            del self._reopening[key]

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
        now, interval = self._clock(), self._first_seconds
        if refuses:
            interval = max(interval, _SHORTEST_REFUSED_SECONDS)
        self._reopening.pop(routing_key, None)
        self._closed[routing_key] = _Closed(now, refuses, interval, now + interval)
        return True
