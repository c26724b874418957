"""What a relay remembers between its claims, so that none reads rows it cannot take. Sans-IO.

Rows without an ordering key are claimed in the order of an index, from the position of the first one that
is still there: a snapshot that somebody holds keeps the index entries of all rows before it, dead as they
are. Keyed rows are discovered in the order in which they become due, each page once, and their keys are
claimed from until a key has no claimable first row; it is forgotten then. So keys that wait cost nothing,
however many there are.

Nothing here is needed for order or against loss: the claim itself takes only the first row of a key, and
locks it. What this memory has passed by (a transaction that committed late, a key whose parked row is gone)
is found by the sweep.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from outbox_relay.key_bounds import LOWEST_ID, KeyBounds

_WINDOW_MICROS = 250_000
"""How far back each claim reads again: some transactions commit later than others that began after them."""

_WIDER_WINDOWS_MICROS = ((4_000_000, 500_000), (1_000_000, 50_000))
"""How far back some claims read, and how long after the last one that read so far."""

_DISCOVERY_INTERVAL = 8
"""How many claims there are to one that reads a page of keyed rows, if the known keys fill a batch."""

_PAGE_ROWS = 500
_MOST_PAGE_ROWS = 16_000
"""How many keyed rows are read at least and at most: more after a page of keys that wait."""

_MOST_READY_KEYS = 10_000


class Position(NamedTuple):
    """A place in an index on `send_after, id`."""

    micros: int
    """`send_after` in microseconds since 1970."""
    id: int

    def arguments(self) -> tuple[int | None, int]:
        """What the queries take; None stands for minus infinity."""
        return (None if self.micros == START.micros else self.micros, self.id)

    @classmethod
    def of(cls, micros: int | None, row_id: int) -> "Position":
        """The place of a row that a query returned; None stands for minus infinity."""
        return cls(START.micros if micros is None else micros, row_id)


START = Position(-(2**63), LOWEST_ID)
"""Before all rows, also before one that is due since minus infinity."""


def _before(clock: int | None, micros: int) -> Position:
    return START if clock is None else Position(clock - micros, LOWEST_ID)


@dataclass(slots=True)
class Claim:
    """One claim: what it asks for, and the keys it has in hand."""

    arguments: tuple[Any, ...]
    """The arguments of the query."""
    first: Position
    """From where on it reads rows without a key."""
    batch: int
    generation: int
    """How often everything was forgotten before it."""
    ended_epoch: int
    """The epoch of whose writers it was known before that they had ended."""
    page: int
    """How many rows are read to discover keys."""
    taken: list[str]
    """The keys that it asks for by name."""
    claimed: list[str]
    """The keys of which it has locked a row; those that it asks for until that is known."""


class Claims:
    """The memory that the lanes of a relay share."""

    def __init__(self) -> None:
        self._generation = 0
        self.reset()

    def reset(self) -> None:
        """Forget everything: the next claim reads from the beginning."""
        self._generation += 1
        self._clock: int | None = None
        self._first = START
        self._page_end: Position | None = START
        self._page_clock: int | None = None
        self._late: list[int] = []
        self._ready: dict[str, None] = {}
        self._in_flight: set[str] = set()
        self.bounds = KeyBounds()
        self._read_back_at = [0] * len(_WIDER_WINDOWS_MICROS)
        self._number = 0
        self._page_rows = _PAGE_ROWS
        self._page_was_full = False

    @property
    def first(self) -> Position:
        """Rows without a key before this position were claimed."""
        return min(self._first, _before(self._clock, _WINDOW_MICROS))

    @property
    def cursor(self) -> Position:
        """Keyed rows up to here were discovered."""
        return _before(self._page_clock, _WINDOW_MICROS) if self._page_end is None else self._page_end

    @property
    def has_more(self) -> bool:
        """True if there is a reason to claim again at once, though the last batch was not full."""
        return bool(self._ready or self._late or self._page_was_full)

    def positions(self) -> tuple[int | None, ...]:
        """The arguments of `look`."""
        return (*self.first.arguments(), *self.cursor.arguments())

    def begin(self, batch: int) -> Claim:
        """The next claim, of so many rows of each kind; `ended` has to follow."""
        self._number += 1
        page = self._page(batch)
        taken = [*self._ready][:batch]
        for key in taken:
            del self._ready[key]
        self._in_flight.update(taken)
        late, self._late = self._late, []
        window = self._next_window()
        first = min(self._first, window)
        arguments = (
            batch,
            *first.arguments(),
            late,
            taken,
            [*map(self.bounds.of, taken)],
            *(min(window, self.cursor) if self._page_end is None else self._page_end).arguments(),
            page,
        )
        return Claim(arguments, first, batch, self._generation, self.bounds.ended_epoch, page, taken, taken)

    def _page(self, batch: int) -> int:
        if len(self._ready) >= _MOST_READY_KEYS:
            return 0
        # What other lanes have in hand is no work for this one.
        is_enough = self._ready and len(self._ready) + len(self._in_flight) >= batch
        return 0 if is_enough and self._number % _DISCOVERY_INTERVAL else max(batch, self._page_rows)

    def _next_window(self) -> Position:
        """From where on the next claim reads again what became due a short time ago."""
        if self._clock is None:
            return START
        for number, (window, interval) in enumerate(_WIDER_WINDOWS_MICROS):
            # Also if the clock was set back.
            if abs(self._clock - self._read_back_at[number]) >= interval:
                self._read_back_at[number:] = [self._clock] * (len(_WIDER_WINDOWS_MICROS) - number)
                return _before(self._clock, window)
        return _before(self._clock, _WINDOW_MICROS)

    def found(self, claim: Claim, report: str, first_rows: Sequence[tuple[str, int]]) -> None:
        """Take over what the query has returned: its report, and key and id of each keyed row."""
        claim.claimed = [key for key, _ in first_rows]
        if claim.generation != self._generation:
            return
        read: Mapping[str, Any] = json.loads(report)
        clock: int = read["clock"]
        self._clock = clock
        if claim.first <= self._first:
            # Otherwise rows before were found meanwhile, and are still to be claimed.
            self._first = _before(clock, 0) if read["first"] is None else Position.of(*read["first"])
        if claim.page:
            self._page_was_full = read["discovered"] == claim.page
            self._page_end = Position.of(*read["last"]) if self._page_was_full else None
            self._page_clock = clock
        self._in_flight.update(claim.claimed)
        for key, row_id in first_rows:
            self.bounds.first(key, row_id, claim.ended_epoch)
        found, unclaimable = read["keys"] or {}, {*(read["unclaimable"] or ())}
        for key, row_id in found.items():
            self.bounds.seen(key, row_id)
        keys = {*found}
        self._sort(claim, keys.union(claim.taken), unclaimable)
        if claim.page:
            is_poor = self._page_was_full and len(keys - unclaimable) < claim.page // 8
            self._page_rows = min(4 * claim.page, _MOST_PAGE_ROWS) if is_poor else _PAGE_ROWS

    def _sort(self, claim: Claim, candidates: set[str], unclaimable: set[str]) -> None:
        taken, is_full = {*claim.taken}, len(claim.claimed) >= claim.batch
        for key in candidates.difference(claim.claimed):
            if key not in taken and key in self._in_flight:
                continue  # another lane has its first row
            self._in_flight.discard(key)
            # A key that is ready by now stays so: its row was locked by a lane that may be done with it.
            if is_full and key not in unclaimable:
                self._ready[key] = None

    def ended(self, claim: Claim) -> None:
        """The batch is over, settled or rolled back: its keys may have a next row."""
        self._in_flight.difference_update(claim.taken, claim.claimed)
        self._ready.update(dict.fromkeys(claim.claimed))

    def passed_by(self, rows: Sequence[tuple[int, int | None]], limit: int) -> bool:
        """Claim rows without a key, by id and position, before the first position; True if there are any.

        So many as the limit are not remembered one by one: the next claims read from the first one on.
        """
        if len(rows) >= limit:
            row_id, micros = rows[0]
            self._first = min(self._first, Position.of(micros, row_id))
        else:
            self._late = [row_id for row_id, _ in rows]
        return bool(rows)

    def claimable(self, keys: Mapping[str, int]) -> bool:
        """Claim from keys that have a claimable first row, each with the lowest id of a due row.

        True if one of them was not known.
        """
        for key, row_id in keys.items():
            self.bounds.seen(key, row_id)
        found = [key for key in keys if key not in self._ready and key not in self._in_flight]
        self._ready.update(dict.fromkeys(found[: max(0, _MOST_READY_KEYS - len(self._ready))]))
        return bool(found)
