"""What was committed and what arrived, by message id: the two sides that have to agree in the end.

Pure bookkeeping. The application writes down what became of each transaction, the consumer what it was given.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Arrival:
    """One delivery to the consumer."""

    message_id: UUID
    queue: str
    """The queue that it came from."""
    at: float
    """When, in seconds since the epoch."""
    is_redelivery: bool
    """The broker had handed it out before, to a consumer that went away: no doing of the relay."""


@dataclass(slots=True)
class Ledger:
    """Both sides."""

    committed: dict[UUID, str | None] = field(default_factory=dict)
    """Messages that have to arrive, in the order in which they were emitted, and their ordering keys."""
    rolled_back: set[UUID] = field(default_factory=set)
    """Messages that must never arrive."""
    unknown: dict[UUID, str | None] = field(default_factory=dict)
    """Messages of a transaction whose COMMIT was not answered."""
    arrivals: list[Arrival] = field(default_factory=list)
    """Every delivery, in its order."""
    arrived: set[UUID] = field(default_factory=set)
    """The ids of all arrivals."""

    def note_arrival(self, arrival: Arrival) -> None:
        self.arrivals.append(arrival)
        self.arrived.add(arrival.message_id)

    def resolve(self, in_the_database: set[UUID]) -> int:
        """Classify what is unknown, by the data of the same transactions; tells how many were committed."""
        committed = {known: key for known, key in self.unknown.items() if known in in_the_database}
        self.rolled_back |= self.unknown.keys() - committed.keys()
        self.committed |= committed
        self.unknown = {}
        return len(committed)

    def missing(self) -> set[UUID]:
        """What was committed and has not arrived."""
        return self.committed.keys() - self.arrived

    def uncalled_for(self) -> set[UUID]:
        """What arrived and was never committed."""
        return self.arrived - self.committed.keys() - self.unknown.keys()

    def duplicates(self) -> Counter[UUID]:
        """How many times too often each id was published; the broker's own redeliveries do not count."""
        published = Counter(arrival.message_id for arrival in self.arrivals if not arrival.is_redelivery)
        return Counter({known: count - 1 for known, count in published.items() if count > 1})

    def out_of_order(self) -> dict[str, tuple[list[UUID], list[UUID]]]:
        """The keys whose messages came in another order than they were emitted, with both orders.

        Only the first arrival of a message counts: a repetition comes whenever it comes. Emitted one after
        the other on one connection, the messages of a key have ascending row ids.
        """
        emitted: defaultdict[str, list[UUID]] = defaultdict(list)
        for known, key in self.committed.items():
            if key is not None:
                emitted[key].append(known)
        came: defaultdict[str, list[UUID]] = defaultdict(list)
        for known in dict.fromkeys(arrival.message_id for arrival in self.arrivals):
            key = self.committed.get(known)
            if key is not None:
                came[key].append(known)
        return {key: (ids, came[key]) for key, ids in emitted.items() if ids != came[key]}
