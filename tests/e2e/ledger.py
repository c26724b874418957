"""Orders that are placed all the time while something is done to the shop, and what came of each of them."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from tests.e2e.kubectl import until
from tests.e2e.shop import Shop

PER_SECOND = 50
"""How many orders are begun; half of them are rolled back."""
SOME = 50
"""How many orders are booked before something is done, and after it."""
_MOST = 50_000
_SETTLED_SECONDS = 180.0


@dataclass(frozen=True)
class Account:
    """What came of orders that were all handled."""

    placed: frozenset[int]
    """The numbers of those that were committed."""
    repeated: Mapping[str, int]
    """How often something was done once more than asked for, by what was done."""

    def __str__(self) -> str:
        again = ", ".join(f"{count} {event}s repeated" for event, count in self.repeated.items() if count)
        return f"{len(self.placed):,} orders, none lost, {again or 'nothing repeated'}"


@dataclass(frozen=True)
class Ledger:
    """The orders of one such time, by their numbers."""

    shop: Shop
    first: int

    def orders(self) -> set[int]:
        """Those that were committed."""
        return self._ours(self.shop.orders())

    def bookings(self) -> set[int]:
        """Those that were booked."""
        return self._ours(self.shop.bookings())

    def wait_until_it_goes_on(self) -> None:
        """Until some orders are booked that were not even placed by now."""
        placed = self.orders()
        until("orders that are placed later are booked", lambda: len(self.bookings() - placed) >= SOME)

    def settle(self) -> Account:
        """Wait until all that was placed is handled, however often, and nothing else is."""
        placed = self.orders()
        self._await("booked", placed, self.bookings)
        for event in ("mail", "reminder"):
            self._await(f"in the journal for its {event}", placed, partial(self._journal, event))
        until("the outbox is empty", lambda: self.shop.pending() == 0)
        until("nothing is on its way", self._is_calm)
        repeated = {
            event: sum(counts.values()) - len(placed)
            for event in ("mail", "reminder")
            if (counts := self._journal(event))
        }
        return Account(frozenset(placed), repeated)

    def _await(self, what: str, placed: set[int], look: Callable[[], Collection[int]]) -> None:
        left = set(placed)

        def is_complete() -> bool:
            left.difference_update(look())
            return not left

        try:
            until(f"every order is {what}", is_complete, _SETTLED_SECONDS)
        except AssertionError as error:
            error.add_note(f"{len(left)} of {len(placed)} are not: {sorted(left)[:20]}")
            raise
        assert set(look()) == placed, f"more orders are {what} than were placed"

    def _journal(self, event: str) -> dict[int, int]:
        counts = self.shop.journal(event)
        return {order: counts[order] for order in self._ours(counts)}

    def _is_calm(self) -> bool:
        """Whether no message is in a queue, but for dead letters."""
        queues = self.shop.queues().items()
        return not any(messages for queue, messages in queues if not queue.endswith(".dlq"))

    def _ours(self, orders: Collection[int]) -> set[int]:
        return {order for order in orders if self.first <= order < self.first + _MOST}


@contextmanager
def orders_from(shop: Shop, first: int) -> Iterator[Ledger]:
    """Orders from this number on, as long as the block runs; once some of them are booked."""
    ledger = Ledger(shop, first)
    job = shop.begin_orders(first, _MOST, per_second=PER_SECOND)
    try:
        table = "SELECT FROM pg_tables WHERE tablename = 'bookings'"
        until("the shop has made its tables", lambda: shop.rows(table))
        until("some orders are booked", lambda: len(ledger.bookings()) >= SOME)
        yield ledger
    finally:
        shop.stop_orders(job)
