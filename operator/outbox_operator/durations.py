"""Durations as a manifest spells them: `300ms`, `10s`, `1h30m`.

The text is that of the Gateway API (GEP-2257), a part of what Go reads: up to four numbers of up to five
digits, each with its unit. It has one meaning to Go, to CEL's `duration()` and here, and never overflows.
"""

import re
from datetime import timedelta

PATTERN = "^([0-9]{1,5}(h|m|s|ms)){1,4}$"
"""What a duration looks like; a regular expression to Python as well as to CEL."""

LONGEST_TEXT = 28
"""How many characters the pattern lets through."""

_WHOLE = re.compile(PATTERN.removesuffix("$") + r"\Z")
_PART = re.compile(r"([0-9]+)(h|ms|m|s)")
_UNITS = {
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1),
}
_MOST_OF_A_UNIT = 99_999


def parse(text: str) -> timedelta:
    """The duration that `text` means, or a ValueError that says what to write."""
    if not _WHOLE.match(text):
        raise ValueError(
            f"{text!r} is not a duration: write whole numbers with h, m, s or ms, such as 1h30m or 300ms"
        )
    parts = (int(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    return sum(parts, timedelta())


def format(duration: timedelta) -> str:  # noqa: A001 - read as `durations.format`
    """The shortest text for `duration`, largest unit first: 90 seconds are `1m30s`."""
    if duration < timedelta() or duration % _UNITS["ms"]:
        raise ValueError(f"{duration!r} has no text: a duration is a whole number of milliseconds, 0 or more")
    parts: list[str] = []
    rest = duration
    for unit, length in _UNITS.items():
        count, rest = divmod(rest, length)
        if count > _MOST_OF_A_UNIT:
            raise ValueError(f"{duration!r} has no text: a duration has at most {_MOST_OF_A_UNIT} hours")
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"
