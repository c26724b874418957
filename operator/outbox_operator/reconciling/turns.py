"""Whose turn it is: keys of several groups, one after the other, and not too many of one at a time. Pure."""

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Turns(Generic[Key]):
    """Keys that wait. In a group the first comes first; a group that had a turn goes behind the others."""

    def __init__(self, group_of: Callable[[Key], str], most_of_a_group: int) -> None:
        self._group_of = group_of
        self._most_of_a_group = most_of_a_group
        self._waiting: OrderedDict[str, deque[Key]] = OrderedDict()
        self._taken: Counter[str] = Counter()

    def add(self, key: Key) -> None:
        """Let a key wait; the caller sees that it does so once."""
        self._waiting.setdefault(self._group_of(key), deque()).append(key)

    def take(self) -> Key | None:
        """The next key whose group has not got its share yet; None if there is none."""
        group = next((each for each in self._waiting if self._taken[each] < self._most_of_a_group), None)
        if group is None:
            return None
        keys = self._waiting[group]
        key = keys.popleft()
        self._taken[group] += 1
        if keys:
            self._waiting.move_to_end(group)
        else:
            del self._waiting[group]
        return key

    def done(self, key: Key) -> None:
        """A key that was taken is worked on no more."""
        group = self._group_of(key)
        self._taken[group] -= 1
        if not self._taken[group]:
            del self._taken[group]
