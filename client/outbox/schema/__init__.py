"""The outbox table's DDL: as SQL text for a migration, applied to a session, and checked on a live table.

`create_sql`, `upgrade_sql` and `drop_sql` each give one statement, so that a whole Alembic migration is
`op.execute(outbox.schema.create_sql())` on any driver. Nothing here commits.
"""

from outbox.schema.creation import create_sql, drop_sql
from outbox.schema.locking import advisory_key
from outbox.schema.metadata import table
from outbox.schema.problem import Problem, ProblemKind
from outbox.schema.session import check, check_sync, create, create_sync, plan_upgrade, upgrade, upgrade_sync
from outbox.schema.trigger import ASLEEP_LOCK, DEFAULT_CHANNEL, DUTY_LOCK, NOTIFY_HORIZON, concerns
from outbox.schema.upgrading import upgrade_sql

__all__ = [
    "ASLEEP_LOCK",
    "DEFAULT_CHANNEL",
    "DUTY_LOCK",
    "NOTIFY_HORIZON",
    "Problem",
    "ProblemKind",
    "advisory_key",
    "check",
    "check_sync",
    "concerns",
    "create",
    "create_sql",
    "create_sync",
    "drop_sql",
    "plan_upgrade",
    "table",
    "upgrade",
    "upgrade_sql",
    "upgrade_sync",
]
