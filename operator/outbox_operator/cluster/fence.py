"""What every write has to pass: the knowledge that nobody else can lead by now."""

import time
from collections.abc import Callable

from outbox_operator.cluster.errors import NotLeaderError


def uptime() -> float:
    """Seconds that pass also while the process is stopped or the machine sleeps, and never jump."""
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boottime is None else time.clock_gettime(boottime)


class Fence:
    """Open for a limited time after each renewal of a Lease.

    The time counts from when the renewal began: the API server may have recorded it as early as that.
    """

    def __init__(self, limit_seconds: float, clock: Callable[[], float] = uptime) -> None:
        """`limit_seconds` is less than the Lease's duration, after which another may lead."""
        self._limit_seconds = limit_seconds
        self._clock = clock
        self._since: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether a write may pass now."""
        return self.left_seconds > 0

    @property
    def left_seconds(self) -> float:
        """How long a write may take from now; 0 if none may be made."""
        left = 0.0 if self._since is None else self._since + self._limit_seconds - self._clock()
        return max(left, 0.0)

    def open(self, since: float) -> None:
        """A renewal succeeded that began then, on this fence's clock."""
        self._since = since

    def close(self) -> None:
        """This process does not lead any more."""
        self._since = None

    def check(self) -> float:
        """How many seconds a write may take from now, or a `NotLeaderError`."""
        if (left := self.left_seconds) > 0:
            return left
        if self._since is None:
            raise NotLeaderError("this process does not lead: another replica writes")
        raise NotLeaderError(
            f"this process may not lead any more: its Lease was not renewed for {self._limit_seconds:g} s; "
            f"another replica takes over"
        )
