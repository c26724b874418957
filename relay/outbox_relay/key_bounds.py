"""From which id on the rows of an ordering key have to be read. Sans-IO.

While a snapshot is held, the index keeps an entry of each row of a key that was sent, and finding the first
row reads them all. They can be skipped once no row with a lower id can appear any more: after the end of all
transactions that may have drawn one. Each of them holds a lock on the table, by which it is known.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

LOWEST_ID = -(2**63)

_MOST_KEYS = 20_000


@dataclass(slots=True)
class _Bound:
    from_id: int
    """No unsent row has a lower id, and none will."""
    next_id: int
    """The same once the writers of its epoch have ended, if the key's first row has no lower id then."""
    epoch: int


class KeyBounds:
    """The bounds of the keys that were claimed from, as many as are worth their memory."""

    def __init__(self) -> None:
        self._bounds: dict[str, _Bound] = {}
        self._epoch = 0
        self.ended_epoch = -1
        """The writers of this epoch and of those before have ended."""
        self._writers: AbstractSet[str] = frozenset()
        self._writers_epoch = -1

    def of(self, key: str) -> int:
        """The id from which on its rows are to be read."""
        bound = self._bounds.get(key)
        return LOWEST_ID if bound is None else bound.from_id

    def first(self, key: str, row_id: int, ended_epoch: int) -> None:
        """The first row of a key was read, from the bound on, when `ended_epoch` had been set to this."""
        bound = self._bounds.pop(key, None)
        if bound is None or row_id < bound.from_id:
            bound = _Bound(LOWEST_ID, row_id, self._epoch)
        elif row_id < bound.next_id:
            bound.next_id, bound.epoch = row_id, self._epoch
        elif bound.epoch <= ended_epoch:
            bound.from_id, bound.next_id, bound.epoch = bound.next_id, row_id, self._epoch
        self._bounds[key] = bound
        if len(self._bounds) > _MOST_KEYS:
            del self._bounds[next(iter(self._bounds))]

    def seen(self, key: str, row_id: int) -> None:
        """A row of a key that is due: one below the bound (a person sends it again) takes the bound away."""
        if row_id < self.of(key):
            del self._bounds[key]

    def begin_epoch(self) -> int:
        """Begin the next epoch, before the writers of the last one are read; returns the last one."""
        self._epoch += 1
        return self._epoch - 1

    def writers(self, epoch: int, current: AbstractSet[str]) -> None:
        """The transactions that write to the table after an epoch."""
        if self._writers & current:
            return
        self.ended_epoch = self._writers_epoch
        self._writers, self._writers_epoch = current, epoch
