"""What is to happen, in the order of time."""

import heapq
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from typing import TypeAlias
from uuid import UUID

from outbox.testing.attempt import Attempt
from outbox.testing.clock import Time

Item: TypeAlias = UUID | Attempt
"""A message to hand to the listeners, by its id, or a listener's next attempt at one."""


@dataclass(frozen=True, slots=True, order=True)
class _Entry:
    due: datetime
    number: int
    """In the order of adding, among those due at the same moment."""
    item: Item


class Agenda:
    """Everything that waits for its time."""

    def __init__(self, time: Time) -> None:
        self._time = time
        self._entries: list[_Entry] = []
        self._numbers = count()

    def add(self, due: datetime, item: Item) -> None:
        heapq.heappush(self._entries, _Entry(due, next(self._numbers), item))

    def next(self) -> Item | None:
        """Take the earliest item, or None where its time has not come."""
        if not self._entries or not self._time.reaches(self._entries[0].due):
            return None
        return heapq.heappop(self._entries).item

    def attempts(self) -> list[Attempt]:
        """The attempts that wait, earliest first."""
        return [entry.item for entry in sorted(self._entries) if isinstance(entry.item, Attempt)]
