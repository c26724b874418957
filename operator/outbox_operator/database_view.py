"""A relay's database, as one look at it found it. Pure."""

from dataclasses import dataclass
from datetime import datetime

from outbox_core.horizon_holder import Holder
from outbox_operator.conditions import Finding
from outbox_operator.resources.condition import ConditionStatus


@dataclass(frozen=True, slots=True)
class DatabaseView:
    """What a look found. The numbers are None where it did not come that far."""

    findings: tuple[Finding, ...]
    """About `CredentialsValid`, as far as it is the database's, and about `DatabaseReady`."""
    backlog: int | None = None
    """Messages that are due; beyond 10,000 an estimate."""
    oldest_seconds: float | None = None
    """How long the oldest of them has been due; 0 where none is."""
    oldest_pending_at: datetime | None = None
    """Since when it has been due, by the server's clock; None also where none is."""
    parked: int | None = None
    """Messages that were given up, counted up to 10,000."""
    holder: Holder | None = None
    """What holds the horizon of vacuum, if the table has many dead rows."""
    is_plain: bool = False
    """Whether the connection went over a network without TLS."""
    vacuum: Finding | None = None
    """That it has held it for long."""

    @property
    def is_ready(self) -> bool:
        """Whether it was entered, and a relay can work there."""
        return all(finding.status is ConditionStatus.TRUE for finding in self.findings)
