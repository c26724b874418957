"""What can keep vacuum from removing dead rows, for how long it has, and the cure. Pure."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import assert_never

from outbox.table import quote_identifier, quote_literal

MANY_DEAD_ROWS = 100_000
"""With fewer dead rows it does not matter what holds the horizon: passing over them takes milliseconds."""

LONG_SECONDS = 300.0
"""A report or a backup of a few minutes is ordinary."""

_MANY_TRANSACTIONS = 1_000_000
"""Old for one whose age in seconds nobody knows."""

_END_ON_STANDBY = (
    "SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity "
    "WHERE backend_xmin = '{xid}' AND pid <> pg_catalog.pg_backend_pid() ORDER BY xact_start LIMIT 1"
)
_FIND_GID = "SELECT gid FROM pg_catalog.pg_prepared_xacts WHERE transaction = '{xid}'"


class HolderKind(StrEnum):
    """What can hold the horizon."""

    SESSION = "session"
    PREPARED_TRANSACTION = "prepared_transaction"
    REPLICATION_SLOT = "replication_slot"
    STANDBY = "standby"


@dataclass(frozen=True, slots=True)
class Holder:
    """A session, prepared transaction, replication slot or standby that keeps dead rows from vacuum."""

    kind: HolderKind
    """What it is."""
    xid: int
    """What this transaction and later ones have deleted is kept."""
    transactions: int
    """How many transactions have begun since."""
    pid: int | None = None
    """The server process of a session or standby, or of the standby that uses a slot."""
    is_active: bool = True
    """Whether a standby uses the slot; True of anything else."""
    name: str | None = None
    """Application name, gid or name of the slot; None also where it is not printable ASCII."""
    role: str | None = None
    """Whose it is."""
    database: str | None = None
    """Where it is; None of what belongs to no database."""
    began_at: datetime | None = None
    """When the transaction began; None if nobody knows, or if it is hidden from us."""
    seconds: float | None = None
    """How long ago that was, by the server's clock."""

    @property
    def seems_long(self) -> bool:
        """Whether it probably holds the horizon for long, for those who look only once."""
        if not self.is_active:
            return True
        if self.seconds is None:
            return self.transactions >= _MANY_TRANSACTIONS
        return self.seconds >= LONG_SECONDS

    def is_same(self, other: "Holder") -> bool:
        """Whether the other is this one, at another time."""
        return (self.kind, self.pid, self.name) == (other.kind, other.pid, other.name)

    @property
    def description(self) -> str:
        """What it is, for people; the same text as long as it is the same holder."""
        match self.kind:
            case HolderKind.SESSION:
                since = (
                    f"whose transaction began at {_moment(self.began_at)}"
                    if self.began_at
                    else "of which a role with pg_read_all_stats sees more"
                )
                return f"session {self.pid}{self._whose()}, {since}"
            case HolderKind.PREPARED_TRANSACTION:
                name = quote_literal(self.name).strip() if self.name else f"with xid {self.xid}"
                since = f", prepared at {_moment(self.began_at)}" if self.began_at else ""
                return f"prepared transaction {name}{self._whose()}{since}"
            case HolderKind.REPLICATION_SLOT:
                user = "a standby with hot_standby_feedback uses" if self.is_active else "nobody uses"
                return f"replication slot {quote_identifier(self.name or '')}, which {user}"
            case HolderKind.STANDBY:
                return f"standby {quote_identifier(self.name or '')} with hot_standby_feedback"
            case _:
                assert_never(self.kind)

    @property
    def cure(self) -> str:
        """What to do about it, with the command."""
        match self.kind:
            case HolderKind.SESSION:
                return f"end it with `SELECT pg_catalog.pg_terminate_backend({self.pid})`"
            case HolderKind.PREPARED_TRANSACTION:
                where = f" in database {quote_identifier(self.database)}" if self.database else ""
                if self.name is None:
                    find = f"find its gid with `{_FIND_GID.format(xid=self.xid)}`"
                    return f"{find}, and end it{where} with ROLLBACK PREPARED, unless it is to be committed"
                command = f"ROLLBACK PREPARED {quote_literal(self.name).strip()}"
                return f"end it{where} with `{command}`, unless it is to be committed"
            case HolderKind.REPLICATION_SLOT if not self.is_active:
                drop = f"SELECT pg_catalog.pg_drop_replication_slot({quote_literal(self.name or '').strip()})"
                return f"start its standby, or if that is gone for good drop the slot with `{drop}`"
            case HolderKind.REPLICATION_SLOT | HolderKind.STANDBY:
                end = _END_ON_STANDBY.format(xid=self.xid)
                return f"end the transaction there: on the standby, `{end}`"
            case _:
                assert_never(self.kind)

    def _whose(self) -> str:
        parts = (
            ("application", self.name if self.kind is HolderKind.SESSION else None),
            ("role", self.role),
            ("database", self.database),
        )
        known = [f"{what} {quote_identifier(name)}" for what, name in parts if name]
        return f" ({', '.join(known)})" if known else ""


@dataclass(frozen=True, slots=True)
class Hold:
    """A horizon that stays where it is, as one observer has seen it."""

    holder: Holder
    """What holds it now."""
    since: float
    """When it was first seen there, by the observer's clock."""

    def is_long(self, now: float) -> bool:
        return now - self.since >= LONG_SECONDS


def followed(previous: Hold | None, holder: Holder | None, now: float) -> Hold | None:
    """What has been seen, with one more look; None if nothing holds the horizon.

    A transaction that is open for long may take a new snapshot for each statement, and a standby's feedback
    moves on: only a horizon that stays is held.
    """
    if holder is None:
        return None
    is_same = previous is not None and previous.holder.xid == holder.xid
    return Hold(holder, previous.since if previous and is_same else now)


def _moment(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
