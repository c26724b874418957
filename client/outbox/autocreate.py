"""Creating the table on first use, inside the transaction of whoever emits first."""

from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from outbox.drivers import Statement
from outbox.table import TableName

State: TypeAlias = Literal["missing", "uncommitted", "settled"]

# Whoever creates the table holds its advisory lock until the end of that transaction. A session that holds it
# sees a table that a rollback would still take away.
_PROBE = """
SELECT CASE
    WHEN pg_catalog.to_regclass($1::text) IS NULL THEN 'missing'
    WHEN EXISTS (
        SELECT FROM pg_catalog.pg_locks WHERE locktype = 'advisory' AND pid = pg_catalog.pg_backend_pid()
        AND (classid::bigint << 32 | objid::bigint) = $2::bigint AND objsubid = 1 AND granted
    ) THEN 'uncommitted'
    ELSE 'settled'
END
"""


@dataclass(slots=True)
class AutoCreate:
    """What is known of the table so far, and the two statements that find out and create it."""

    table: TableName
    settled: bool = False
    """The table is there for good: nothing to ask any more."""
    probe: Statement = field(init=False)
    probe_args: tuple[str, int] = field(init=False)
    creation: Statement = field(init=False)

    def __post_init__(self) -> None:
        # Imported here because most applications create the table by a migration.
        from outbox import schema

        self.probe = Statement.of("probe", _PROBE)
        self.probe_args = (self.table.sql, schema.advisory_key(self.table))
        creation = Statement.of("creation", schema.create_sql(self.table))
        self.creation = replace(creation, creates=self.table)

    def must_create(self, state: State) -> bool:
        """Take note of what the probe found, and tell whether the table has to be created now."""
        self.settled = state == "settled"
        return state == "missing"
