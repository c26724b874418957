"""Something wrong with a live table, said to a person and to a program."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

ProblemKind: TypeAlias = Literal[
    "missing_table",
    "missing_column",
    "wrong_type",
    "missing_not_null",
    "unwanted_not_null",
    "missing_default",
    "missing_key",
    "missing_index",
    "invalid_index",
    "missing_trigger",
    "outdated_trigger",
    "disabled_trigger",
]
"""What can be wrong with a table."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that keeps a live table from working as an outbox."""

    kind: ProblemKind
    """What is wrong."""
    object: str
    """The name of the table, column, index or trigger it is about, unquoted."""
    message: str
    """The table, the object, what is wrong and what to do, for a person."""

    def __str__(self) -> str:
        return self.message
