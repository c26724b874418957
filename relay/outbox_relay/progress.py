"""Whether messages leave the table: a relay is not ready if rows are due and none is sent."""

from dataclasses import dataclass
from datetime import datetime

from outbox_core.backlog import Backlog

_STALLED_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class _Seen:
    """What was measured last, and since when nothing has moved."""

    due: int
    oldest_at: datetime | None
    settled: int
    since: float


class Progress:
    """Compares measurements of the backlog. No I/O; the time is passed in."""

    def __init__(self) -> None:
        self._seen: _Seen | None = None

    def measured(self, backlog: Backlog, settled: int, now: float) -> str | None:
        """What is wrong, given the number of rows that this relay has ever settled; None if nothing is.

        If another replica does all the work, the backlog shrinks or its oldest row is another one.
        """
        seen, self._seen = self._seen, None
        if not backlog.due:
            return None
        is_stalled = (
            seen is not None
            and seen.oldest_at == backlog.oldest_at
            and seen.due <= backlog.due
            and seen.settled == settled
        )
        since = seen.since if seen is not None and is_stalled else now
        self._seen = _Seen(backlog.due, backlog.oldest_at, settled, since)
        if now - since < _STALLED_SECONDS:
            return None
        return (
            f"{backlog.due} messages are due, and none has been sent for {now - since:.0f} s; "
            "look for sessions that lock their rows (pg_stat_activity, pg_locks)"
        )
