"""A duration as Go reads it, and so CEL: more texts are one to them than may be in a manifest. Pure."""

import re
from datetime import timedelta

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}
_PART = rf"([0-9]+\.?[0-9]*|\.[0-9]+)({'|'.join(_UNITS)})"
_WHOLE = rf"[-+]?(0|({_PART})+)"
_MOST_SECONDS = 2**63 / 1e9


def go_duration(text: str) -> timedelta | None:
    """What `text` means; None where it means nothing."""
    seconds = sum(float(number) * _UNITS[unit] for number, unit in re.findall(_PART, text))
    if not re.fullmatch(_WHOLE, text) or seconds >= _MOST_SECONDS:
        return None
    return timedelta(seconds=-seconds if text.startswith("-") else seconds)
