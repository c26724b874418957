"""What is shown of a project: a row for each resource. Pure."""

from dataclasses import asdict, dataclass

from outbox_operator.conditions import Finding

HEADINGS = (
    "RESOURCE",
    "READY",
    "REASON",
    "RUNNING",
    "BACKLOG",
    "PARKED",
    "DLQ",
    "HANDLED",
    "RETRIES",
    "DEAD",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A resource."""

    resource: str
    """Its kind and name, as kubectl says it."""
    ready: str
    """Whether all is well: True, False or Unknown."""
    reason: str
    """Why, in one word."""
    message: str
    """Why it is not, with what to do about it."""
    conditions: tuple[Finding, ...]
    """What that is the sum of, in the order in which a person would mend it."""
    running: str
    """How many processes are ready, of how many."""
    backlog: int | None = None
    """Messages that are due in the table, or in the queue; None where nobody knows."""
    parked: int | None = None
    """Of a relay: messages in the table that were given up."""
    dead_letters: int | None = None
    """Of a listener: messages in the dead-letter queue."""
    handled: int | None = None
    """Of a listener: messages that were handled since the start."""
    retries: int | None = None
    """Of a listener: attempts that failed and were to be repeated."""
    dead_lettered: int | None = None
    """Of a listener: messages that were given up since the start."""

    @property
    def cells(self) -> tuple[str, ...]:
        """Below the headings."""
        shown = (value for key, value in asdict(self).items() if key not in ("message", "conditions"))
        return tuple("" if value is None else str(value) for value in shown)


@dataclass(frozen=True, slots=True)
class Board:
    """All of it."""

    rows: tuple[Row, ...] = ()
    """The resources."""
    complaints: tuple[str, ...] = ()
    """What is wrong with the files as they are, while those of before are in force."""

    @property
    def is_ready(self) -> bool:
        """Whether all is well."""
        return bool(self.rows) and all(row.ready == "True" for row in self.rows)
