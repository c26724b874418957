"""What happened to the shop's messages, and whether it adds up. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

HEADINGS = ("MESSAGE", "EMITTED", "LISTENER", "HANDLED", "RETRIES", "DEAD LETTERS", "REDRIVEN", "LEFT OVER")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The messages of one routing key, which one listener handles."""

    routing_key: str
    """What they are emitted with."""
    emitted: int
    """How many were committed."""
    listener: str
    """Who handles them."""
    handled: int
    """How many were, as the shop itself wrote down; one that was handled twice counts twice."""
    retries: int
    """How many attempts failed and were repeated."""
    dead_letters: int
    """How many ended in the dead-letter queue."""
    redriven: int
    """How many of those were sent to the listener again."""
    left_over: int
    """How many are still anywhere: unsent in the table, or in a queue."""

    @property
    def cells(self) -> tuple[object, ...]:
        """Below the headings."""
        return (
            self.routing_key,
            self.emitted,
            self.listener,
            self.handled,
            self.retries,
            self.dead_letters,
            self.redriven,
            self.left_over,
        )


@dataclass(frozen=True, slots=True)
class Expectation:
    """What must have become of the messages of one routing key, for each that was emitted."""

    messages: int
    """How many there must be."""
    retries: int = 0
    """How many attempts at each fail and are repeated."""
    dead_letters: int = 0
    """How often each ends in the dead-letter queue."""


@dataclass(frozen=True, slots=True)
class Account:
    """All of it."""

    begun: int
    """How many orders were begun."""
    rolled_back: int
    """How many of them were given up: nothing about those may be anywhere."""
    placed: int
    """How many orders there are."""
    strangers: int
    """How many bookings or notes are about an order that was rolled back."""
    waiting: int
    """How many messages are in delay tiers."""
    lines: tuple[Line, ...]
    """The messages, by their routing key."""


def discrepancies(account: Account, expected: dict[str, Expectation]) -> Iterator[str]:
    """What does not add up."""
    if account.placed + account.rolled_back != account.begun:
        yield f"of {account.begun} orders {account.placed} were placed and {account.rolled_back} rolled back"
    if account.strangers:
        yield f"orders that were rolled back were heard of {account.strangers} times"
    if account.waiting:
        yield f"{account.waiting} messages still wait for a retry"
    for line in account.lines:
        wanted = expected[line.routing_key]
        for what, found, right in (
            ("emitted", line.emitted, wanted.messages),
            ("handled", line.handled, line.emitted),
            ("retries", line.retries, line.emitted * wanted.retries),
            ("dead letters", line.dead_letters, line.emitted * wanted.dead_letters),
            ("redriven", line.redriven, line.dead_letters),
            ("left over", line.left_over, 0),
        ):
            if found != right:
                yield f"{line.routing_key}: {what} is {found}, and {right} would be right"
