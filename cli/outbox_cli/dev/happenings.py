"""What the processes say, line by line, and what became of messages by it. Pure.

Their logs are the source: they tell of each message, retry and dead letter when it has happened, cost the
broker nothing, and have what the listeners themselves print between them.
"""

import json
import re
from dataclasses import dataclass
from enum import StrEnum

from outbox_core.masking import mask

_HANDLED = re.compile(r"message (\S+) of queue \S+ (processed successfully|skipped: .*)", re.DOTALL)
_FAILED = re.compile(
    r"attempt (\d+) at message (\S+) of queue \S+ failed with (.*); it is (tried again .*|dead-lettered.*)",
    re.DOTALL,
)
_LOUD = frozenset({"WARNING", "ERROR", "CRITICAL"})


class Kind(StrEnum):
    """What sort of news it is."""

    HANDLED = "handled"
    """A listener has returned."""
    RETRIED = "retry"
    """It has failed, and is called again later."""
    DEAD_LETTERED = "dead letter"
    """It has failed for the last time."""
    TROUBLE = "trouble"
    """Something that a person may have to mend."""
    SAID = "says"
    """Anything else."""


@dataclass(frozen=True, slots=True)
class Happening:
    """One line of news."""

    source: str
    """Who says it: a resource."""
    kind: Kind
    """What sort of news it is."""
    text: str
    """The news, on one line and without passwords."""


def heard(source: str, line: str) -> Happening:
    """What a line of a process means: a log entry of ours, or whatever it printed."""
    try:
        entry = json.loads(line)
    except ValueError:
        entry = None
    if not isinstance(entry, dict) or "message" not in entry:
        return Happening(source, Kind.SAID, _one_line(line))
    text = str(entry["message"])
    if handled := _HANDLED.fullmatch(text):
        note = handled[2].removeprefix("processed successfully")
        return Happening(source, Kind.HANDLED, _one_line(f"message {handled[1]} {note}"))
    if failed := _FAILED.fullmatch(text):
        attempt, message, error, follows = failed.groups()
        kind = Kind.RETRIED if follows.startswith("tried again") else Kind.DEAD_LETTERED
        return Happening(source, kind, _one_line(f"attempt {attempt}: {error}; {follows}; message {message}"))
    kind = Kind.TROUBLE if entry.get("level") in _LOUD else Kind.SAID
    return Happening(source, kind, _one_line(text))


def _one_line(text: str) -> str:
    return mask(" ".join(text.split()))
