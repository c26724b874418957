"""Amounts of CPU, memory and storage as Kubernetes spells them: `500m`, `0.5`, `1Gi`."""

import re
from decimal import Decimal

_SUFFIXES = {
    "": Decimal(1),
    **{suffix: Decimal(1000) ** -power for power, suffix in enumerate("mun", start=1)},
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)},
}
# An exponent has digits: 12E is twelve exa.
_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)([a-zA-Z]{0,2})")


def parse(quantity: str | float) -> Decimal | None:
    """The amount, or None where the text is none."""
    found = _QUANTITY.fullmatch(str(quantity))
    if found is None or found[2] not in _SUFFIXES:
        return None
    return Decimal(found[1]) * _SUFFIXES[found[2]]


def equal(one: str | float, other: str | float) -> bool:
    """Whether both are the same amount, however they are spelled."""
    return one == other or (parse(one) is not None and parse(one) == parse(other))
