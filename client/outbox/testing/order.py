"""The queues of ordered listeners: a message that failed is waited for, and not overtaken."""

from collections import deque
from dataclasses import replace
from datetime import datetime

from outbox.testing.attempt import Attempt
from outbox.testing.records import RecordedMessage


class Order:
    """Who waits behind whom, by queue. Listeners that are not ordered never wait."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[Attempt]] = {}

    @property
    def held(self) -> list[RecordedMessage]:
        """The messages that wait behind one that failed."""
        return [attempt.message for line in self._lines.values() for attempt in line]

    def admits(self, attempt: Attempt) -> bool:
        """Whether it is this attempt's turn; otherwise it is put in line."""
        line = self._lines.get(attempt.listener.queue)
        if line is None or attempt.number > 1:  # a next attempt is what the line waits for
            return True
        line.append(attempt)
        return False

    def hold(self, attempt: Attempt) -> None:
        """Let the queue wait for the next attempt after this one."""
        if attempt.listener.ordered:
            self._lines.setdefault(attempt.listener.queue, deque())

    def release(self, attempt: Attempt, now: datetime) -> list[Attempt]:
        """Those that waited for the end of this one, whose turn it is now."""
        line = self._lines.pop(attempt.listener.queue, ())
        return [replace(waiting, due=max(waiting.due, now)) for waiting in line]
