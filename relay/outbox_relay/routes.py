"""Which routing keys are held back, because a queue behind them refuses messages or does not confirm them.

A broker does not tell which of several queues has refused a message, and the others have it already: each
further attempt is another copy for them. And a message that a queue does not take stops all that is behind it
on its channel. So a closed route sends one message at a time as a probe, at growing intervals, and a confirm
opens it again. There may be room for one message and not for all that wait: those that were refused before
follow a few at a time, two for each confirm, until one is refused again.

Routing keys may be as many as messages, and one full queue then refuses them all. So routes that were refused
at about the same time are a cohort: they take turns with their probes, and when one is confirmed the others
follow a few at a time. No I/O; the clock is passed in.
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

_COHORT_SECONDS = 1.0
"""How long after its first route others join a cohort."""

_TURNS = 8
"""How many intervals it takes until each route of a large cohort has sent a probe."""


@dataclass(slots=True)
class _Reopening:
    """A route of which a queue refused messages a short time ago."""

    until: float
    next_at: float
    """When one may be sent though no confirm has come."""
    may_follow: int = 0
    """How many of the messages that were refused may be sent now."""

    def lets_one_follow(self, now: float) -> bool:
        """Whether a message that was refused may be sent now; it counts as sent."""
        if self.may_follow == 0 and now < self.next_at:
            return False
        self.may_follow = max(0, self.may_follow - 1)
        self.next_at = now + _SHORTEST_REFUSED_SECONDS
        return True


@dataclass(slots=True)
class _Cohort:
    """Routes that were closed at about the same time, maybe by one queue."""

    since: float
    size: int = 0
    reopening: _Reopening | None = None
    """Set when one of them has opened."""

    def confirmed(self, now: float, count: int) -> None:
        """A queue has room again for one of its routes: the others may follow."""
        if self.reopening is None:
            self.reopening = _Reopening(now, now)
        self.reopening.until = now + _REOPENING_SECONDS
        self.reopening.may_follow = min(self.reopening.may_follow + _FOLLOWING * count, _MOST_FOLLOWING)

    def refused(self) -> None:
        """There was no room for one that followed."""
        if self.reopening is not None:
            self.reopening.may_follow = 0

    def lets_one_follow(self, now: float) -> bool:
        """Whether another of its routes may send a message now."""
        reopening = self.reopening
        return reopening is not None and now < reopening.until and reopening.lets_one_follow(now)


@dataclass(slots=True)
class _Closed:
    """A route that is held back."""

    since: float
    refuses: bool
    """A queue refuses messages; otherwise one does not confirm them."""
    interval: float
    next_probe: float
    cohort: _Cohort
    turn: int
    """When it probes, among its cohort."""
    steps: int = 0
    """How many intervals have passed."""

    def is_to_probe(self, now: float) -> bool:
        """Whether a message is to be sent as a probe now; it counts as sent."""
        if self.refuses and self.cohort.lets_one_follow(now):
            return True
        if now < self.next_probe:
            return False
        has_turn = not self.refuses or (self.turn + self.steps) % min(_TURNS, self.cohort.size) == 0
        self.steps += 1
        self.interval = min(self.interval * _GROWTH, _LONGEST_INTERVAL_SECONDS)
        self.next_probe = now + self.interval
        return has_turn


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
        self._cohort = _Cohort(float("-inf"))

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
        if may_probe and closed.is_to_probe(now):
            return "probe"
        # As long again as the route has been closed: in a long time a message is moved only a few times.
        return min(max(now - closed.since, self._first_seconds), self._longest_seconds)

    def _follow(self, routing_key: str) -> Admission:
        """Whether a message that was refused before may be sent on an open route."""
        reopening = self._reopening.get(routing_key)
        if reopening is None or reopening.lets_one_follow(self._clock()):
            return "send"
        return self._first_seconds

    def confirmed(self, routing_keys: Iterable[str]) -> list[str]:
        """Open the routes of these messages; returns those that were closed."""
        now, opened = self._clock(), list[str]()
        self._forget_reopened(now)
        for key, count in Counter(routing_keys).items():
            if (closed := self._closed.pop(key, None)) is not None:
                opened.append(key)
                if closed.refuses:
                    closed.cohort.confirmed(now, count)
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
            closed.cohort.refused()
            return False
        if len(self._closed) >= _MOST_ROUTES:
            del self._closed[next(iter(self._closed))]
        now, interval = self._clock(), self._first_seconds
        if refuses:
            interval = max(interval, _SHORTEST_REFUSED_SECONDS)
        self._reopening.pop(routing_key, None)
        cohort = self._joined(now)
        self._closed[routing_key] = _Closed(now, refuses, interval, now + interval, cohort, cohort.size - 1)
        return True

    def _joined(self, now: float) -> _Cohort:
        if now - self._cohort.since > _COHORT_SECONDS or self._cohort.reopening is not None:
            self._cohort = _Cohort(now)
        self._cohort.size += 1
        return self._cohort
