"""Which messages of the table are meant, as a condition in SQL. Pure."""

import re
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any

from outbox.table import PENDING


class State(StrEnum):
    """What a message is waiting for."""

    PENDING = "pending"
    """For the relay: it is due."""
    DELAYED = "delayed"
    """For the moment at which it is due."""
    PARKED = "parked"
    """For a person: the relay has given up."""
    SENT = "sent"
    """For nothing."""


CONDITIONS = {
    State.PENDING: f"{PENDING} AND send_after <= pg_catalog.now()",
    State.DELAYED: f"{PENDING} AND send_after > pg_catalog.now()",
    State.PARKED: "sent_at IS NULL AND parked_at IS NOT NULL",
    State.SENT: "sent_at IS NOT NULL",
}

STATE_SQL = "CASE " + " ".join(f"WHEN {sql} THEN '{state}'" for state, sql in CONDITIONS.items()) + " END"
"""The state of a row."""


@dataclass(frozen=True, slots=True)
class Query:
    """The messages that are meant: those that fit all of it."""

    states: tuple[State, ...] = (State.PENDING, State.DELAYED, State.PARKED)
    """In one of these states."""
    ids: tuple[int, ...] = ()
    """One of these rows; any where empty."""
    routing_key: str | None = None
    """A pattern of the routing key, as `matching` reads it."""
    older_than: timedelta | None = None
    """Emitted longer ago than this."""
    newer_than: timedelta | None = None
    """Emitted since."""

    def where(self) -> tuple[str, list[Any]]:
        """The condition, and the values of its parameters from $1 on."""
        conditions = [" OR ".join(f"({CONDITIONS[state]})" for state in self.states)]
        arguments: list[Any] = []
        for sql, value in (
            ("id = ANY (${}::bigint[])", list(self.ids) or None),
            (
                "'.' || routing_key::text ~ ${}::text",
                None if self.routing_key is None else matching(self.routing_key),
            ),
            ("created_at < pg_catalog.now() - ${}::interval", self.older_than),
            ("created_at >= pg_catalog.now() - ${}::interval", self.newer_than),
        ):
            if value is not None:
                arguments.append(value)
                conditions.append(sql.format(len(arguments)))
        return " AND ".join(f"({condition})" for condition in conditions), arguments


def matching(pattern: str) -> str:
    """A regular expression for a dot and then a routing key.

    The pattern is that of a binding: `*` is one word, `#` any number of words, also none. Inside a word `*`
    is any text, as in a shell.
    """
    return "^" + "".join(map(_word, pattern.split("."))) + "$"


def _word(word: str) -> str:
    if word == "#":
        return r"(\.[^.]*)*"
    return r"\." + "[^.]*".join(map(re.escape, word.split("*")))
