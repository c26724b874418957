"""Something wrong with a live table, said to a person and to a program."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

ProblemKind: TypeAlias = Literal[
    "missing_table",
    "not_a_table",
    "missing_column",
    "wrong_type",
    "missing_not_null",
    "unwanted_not_null",
    "missing_default",
    "unfilled_column",
    "missing_key",
    "missing_index",
    "invalid_index",
    "missing_trigger",
    "outdated_trigger",
    "older_trigger",
    "disabled_trigger",
    "unwanted_trigger",
    "missing_storage_parameter",
    "rows_hidden_from_role",
    "rows_filtered_for_role",
]
"""What can be wrong with a table."""

_WORKABLE: tuple[ProblemKind, ...] = (
    "unfilled_column",
    "older_trigger",
    "unwanted_trigger",
    "missing_storage_parameter",
    "rows_filtered_for_role",
)


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that keeps a live table from working as an outbox."""

    kind: ProblemKind
    """What is wrong."""
    object: str
    """The name of the table, column, index, trigger, storage parameter or role it is about, unquoted."""
    message: str
    """The table, the object, what is wrong and what to do, for a person."""
    slows_only: bool = False
    """True if everything works without it, and slower."""

    @property
    def stops_relay(self) -> bool:
        """False if a relay can work: only emits fail, it is slower, or rows are hidden, maybe on purpose."""
        return self.kind not in _WORKABLE and not self.slows_only

    @property
    def is_warning(self) -> bool:
        """True if a person has to judge whether it is a problem at all."""
        return self.kind == "rows_filtered_for_role"

    def __str__(self) -> str:
        return self.message
