"""A moment as Go reads it, in its words about a text that is none. Pure."""

import re
from calendar import monthrange

from outbox_cli.dev.admission.complaint import quoted

_LAYOUT = "2006-01-02T15:04:05Z07:00"
_PARTS = [
    ("2006", "[0-9]{4}"),
    ("-", "-"),
    ("01", "[0-9]{2}"),
    ("-", "-"),
    ("02", "[0-9]{2}"),
    ("T", "T"),
    ("15", "[0-9]{1,2}"),
    (":", ":"),
    ("04", "[0-9]{2}"),
    (":", ":"),
    ("05", "[0-9]{2}"),
    ("", r"([.,][0-9]+)?"),
    ("Z07:00", "Z|[+-][0-9]{2}:[0-9]{2}"),
]
"""What the layout consists of, and what may be there."""

_RANGES = {
    "01": ("month", range(1, 13)),
    "15": ("hour", range(24)),
    "04": ("minute", range(60)),
    "05": ("second", range(60)),
}
"""What a number is, and what it may be; of the day that depends."""


def of_time(text: str) -> str | None:
    """What is wrong with it; None where it is a time."""
    said = f"parsing time {quoted(text)}"
    found, rest = dict[str, str](), text
    for part, pattern in _PARTS:
        if (match := re.match(pattern, rest)) is None:
            return f"{said} as {quoted(_LAYOUT)}: cannot parse {quoted(rest)} as {quoted(part)}"
        found[part], rest = match[0], rest[match.end() :]
        name, numbers = _RANGES.get(part, ("", range(0)))
        if name and int(found[part]) not in numbers:
            return f"{said}: {name} out of range"
    if rest:
        return f"{said}: extra text: {quoted(rest)}"
    if not 1 <= int(found["02"]) <= monthrange(int(found["2006"]), int(found["01"]))[1]:
        return f"{said}: day out of range"
    return None
