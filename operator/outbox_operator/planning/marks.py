"""Whose the bindings on a broker are: marks tell which listener, of which installation, made each. Pure."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from outbox.topology import dead_letter_exchange
from outbox_operator.broker.snapshot import Mark, ObservedBinding, Snapshot


@dataclass(frozen=True, slots=True)
class Domain:
    """The resources that this operator manages, among all whose marks are on a broker."""

    installation: str = ""
    """The installation's id; empty if it has none."""
    namespaces: tuple[str, ...] = ()
    """The namespaces that it watches; all of them if there are none."""

    def has(self, mark: Mark) -> bool:
        """Whether a listener's mark is of a resource that this operator would know if it exists."""
        namespace = mark.owner.partition("/")[0]
        return mark.is_of(self.installation) and (not self.namespaces or namespace in self.namespaces)


EVERYTHING = Domain()
"""That of an operator without an id, which watches all namespaces."""


@dataclass(frozen=True, slots=True)
class Marks:
    """The marked bindings of one listener's queues."""

    bindings: tuple[ObservedBinding, ...] = ()
    """Those with the mark of a listener, of the queue and of its dead-letter queue."""
    domain: Domain = EVERYTHING
    """What this operator manages."""

    @classmethod
    def on(cls, queues: Iterable[str], snapshot: Snapshot, domain: Domain) -> "Marks":
        found = (each for queue in queues for each in snapshot.bindings.get(queue, ()))
        # The mark of a tier is the name of its exchange.
        return cls(tuple(each for each in found if each.owner is not None and "/" in each.owner), domain)

    def owners(self, queue: str) -> frozenset[str]:
        """The listeners of this operator's domain, dead or alive, that have marked a queue."""
        return frozenset(
            mark.owner
            for each, mark in self._marked()
            if each.binding.queue == queue and self.domain.has(mark)
        )

    def has(self, owner: str) -> bool:
        """Whether a listener of this operator's domain has marked one of the queues."""
        return any(mark.owner == owner and self.domain.has(mark) for _, mark in self._marked())

    def foreign(self) -> tuple[ObservedBinding, ...]:
        """The bindings of listeners that another operator manages."""
        return tuple(each for each, mark in self._marked() if not self.domain.has(mark))

    def stale(self, claimants: Collection[str]) -> tuple[ObservedBinding, ...]:
        """The bindings of listeners that this operator would know, and that do not ask for the queues."""
        return tuple(
            each for each, mark in self._marked() if self.domain.has(mark) and mark.owner not in claimants
        )

    def _marked(self) -> Iterator[tuple[ObservedBinding, Mark]]:
        for each in self.bindings:
            if each.mark is not None:
                yield each, each.mark


NO_MARKS = Marks()
"""For queues that have no marks, or that nobody has looked at."""


def sharing_installations(exchange: str, snapshot: Snapshot, domain: Domain) -> tuple[str, ...]:
    """The other installations that have bound something to an exchange or its delay tiers, sorted."""
    return tuple(sorted(snapshot.installations.get(exchange, frozenset()) - {domain.installation}))


def bindings_of_others(
    exchange: str, snapshot: Snapshot, domain: Domain, listeners: Collection[str]
) -> tuple[ObservedBinding, ...]:
    """The bindings to an exchange, its dead-letter exchange or its tiers that are not its relay's business.

    These are those of another operator, and those of `listeners`, which belong to other relays.
    """
    exchanges = (exchange, dead_letter_exchange(exchange))
    return tuple(
        each
        for bindings in snapshot.bindings.values()
        for each in bindings
        if (each.binding.exchange in exchanges and _is_of_others(each, domain, listeners))
        or (each.owner == exchange and not each.is_of(exchange, domain.installation))
    )


def _is_of_others(binding: ObservedBinding, domain: Domain, listeners: Collection[str]) -> bool:
    mark = binding.mark
    return mark is not None and (not domain.has(mark) or mark.owner in listeners)
