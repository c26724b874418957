"""Names in an alphabet that is smaller than the broker's. Pure."""

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

H = TypeVar("H", bound=Hashable)


def labels(things: Iterable[H], made: Callable[[H], str]) -> dict[H, str]:
    """A label for each, made by `made`; those that come out the same are counted."""
    found: dict[H, str] = {}
    taken: set[str] = set()
    for thing in things:
        label = first = made(thing)
        number = 1
        while label in taken:
            number += 1
            label = f"{first}-{number}"
        taken.add(label)
        found[thing] = label
    return found
