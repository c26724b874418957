"""What time it is in a test: the one on the test's own clock, or whatever the next message needs."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

_START = datetime(2025, 1, 1, tzinfo=UTC)
_FIRST = datetime.min.replace(tzinfo=UTC)
_LAST = datetime.max.replace(tzinfo=UTC)


class Clock:
    """A clock that stands still until the test moves it."""

    def __init__(self, start: datetime | None = None) -> None:
        """Set it to `start`, which has a timezone, or to the beginning of 2025."""
        if start is not None and start.utcoffset() is None:
            raise ValueError(f"Clock({start!r}) has no timezone: write datetime(…, tzinfo=UTC)")
        self._now = start or _START

    @property
    def now(self) -> datetime:
        """The time it shows."""
        return self._now

    def advance(self, by: timedelta | float) -> datetime:
        """Move it forward by a timedelta or a number of seconds, and read it; it is `drain` that delivers."""
        step = by if isinstance(by, timedelta) else timedelta(seconds=by)
        if step < timedelta(0):
            raise ValueError(f"Clock.advance({by!r}): time does not go back; make a second Clock for that")
        self._now += step
        return self._now

    def reaches(self, due: datetime) -> bool:
        """Whether this moment has come."""
        return due <= self._now

    def at(self, due: datetime) -> AbstractContextManager[None]:  # noqa: ARG002 — what `AtOnce` needs
        """While a message that was due then is delivered; the clock still shows what the test has set."""
        return nullcontext()


class AtOnce:
    """Time without a clock: the real one, except that every moment comes as soon as it is waited for."""

    def __init__(self) -> None:
        self._moment: datetime | None = None

    @property
    def now(self) -> datetime:
        real = datetime.now(UTC)
        return real if self._moment is None else max(real, self._moment)

    def reaches(self, due: datetime) -> bool:  # noqa: ARG002 — what `Clock` needs
        return True

    @contextmanager
    def at(self, due: datetime) -> Iterator[None]:
        """Let it be `due` for this long, so that what a timer's listener emits comes after the timer."""
        before, self._moment = self._moment, due
        try:
            yield
        finally:
            self._moment = before


def later(moment: datetime, by: timedelta) -> datetime:
    """The moment so much later, or the last one that Python has: Postgres goes on to the year 294276."""
    try:
        return moment + by
    except OverflowError:
        return _LAST if by > timedelta(0) else _FIRST


Time: TypeAlias = Clock | AtOnce
