"""The outbox table in memory: what is committed, and how it changes."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias
from uuid import UUID

from outbox.testing.agenda import Agenda
from outbox.testing.clock import Time
from outbox.testing.records import RecordedMessage

TimerKey: TypeAlias = tuple[str, str | None]
"""A routing key and a timer id; no timer has the id None."""


@dataclass(frozen=True, slots=True)
class Emit:
    """A message to insert."""

    message: RecordedMessage
    """The message."""
    replace: bool = False
    """Whether it takes the place of a pending timer, or gives way to it."""

    @property
    def timer(self) -> TimerKey:
        return self.message.routing_key, self.message.timer_id


@dataclass(frozen=True, slots=True)
class Cancel:
    """A pending timer to delete."""

    timer: TimerKey
    """Its routing key and id."""


Change: TypeAlias = Emit | Cancel


@dataclass(frozen=True, slots=True)
class Pending:
    """A committed message that no listener was given yet."""

    message: RecordedMessage
    """The message."""
    since: datetime
    """From when on it could have been delivered: its expiration counts from here."""


class MemoryTable:
    """What is committed."""

    def __init__(self, agenda: Agenda, time: Time) -> None:
        self.time = time
        self.messages: dict[UUID, RecordedMessage] = {}
        self.pending: dict[UUID, Pending] = {}
        self._timers: dict[TimerKey, UUID] = {}
        self._lines: dict[str, list[UUID]] = {}
        self._agenda = agenda

    def has_timer(self, timer: TimerKey) -> bool:
        return timer in self._timers

    def apply(self, changes: Sequence[Change]) -> None:
        """Commit. A timer that another session has committed meanwhile stays, unless it is to be replaced."""
        for change in changes:
            pending = self._timers.get(change.timer)
            match change:
                case Emit(message, replace):
                    if pending is None or replace:
                        self._delete(pending)
                        self._insert(message)
                case Cancel():
                    self._delete(pending)

    def take(self, message_id: UUID) -> Pending | None:
        """Remove a message from the pending ones, as sending it does; None where it was cancelled."""
        taken = self.pending.pop(message_id, None)
        if taken is not None:
            self._timers.pop((taken.message.routing_key, taken.message.timer_id), None)
        return taken

    def _insert(self, message: RecordedMessage) -> None:
        self.messages[message.message_id] = message
        self.pending[message.message_id] = Pending(message, max(message.due, self.time.now))
        if message.timer_id is not None:
            self._timers[message.routing_key, message.timer_id] = message.message_id
        if message.ordering_key is not None:
            line = self._lines.setdefault(message.ordering_key, [])
            line.append(message.message_id)
            if len(line) > 1:
                return  # its time comes when those before it are sent, also if they are due later
        self._agenda.add(message.due, message.message_id)

    def leave_line(self, message: RecordedMessage) -> None:
        """Let the next message with the same ordering key be the first, if this one was."""
        if message.ordering_key is None:
            return
        line = self._lines[message.ordering_key]
        was_first = line[0] == message.message_id
        line.remove(message.message_id)
        if not line:
            del self._lines[message.ordering_key]
        elif was_first:
            following = self.pending[line[0]].message
            due = max(following.due, message.due)
            self.pending[line[0]] = Pending(following, max(following.due, self.time.now))
            self._agenda.add(due, following.message_id)

    def _delete(self, message_id: UUID | None) -> None:
        if message_id is not None:
            self.take(message_id)
            self.leave_line(self.messages.pop(message_id))
