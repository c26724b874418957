"""What a live table is like: one query for all the facts, and the types they are read into."""

# ruff: noqa: S608 -- what is put into the SQL is a constant of ours, or quoted by outbox.table

import json
from dataclasses import dataclass
from typing import Any

from outbox.drivers.statement import Statement
from outbox.schema.indexes import SHAPE, USABLE

OBSERVE = Statement.of(
    "observe_table",
    f"""
SELECT pg_catalog.json_build_object(
    'kind', relkind,
    'columns', ARRAY(
        SELECT pg_catalog.json_build_object(
            'name', attname,
            'type', pg_catalog.format_type(atttypid, atttypmod),
            'nullable', NOT attnotnull,
            'nullable_domain', NOT typnotnull,
            'filled', atthasdef OR attidentity <> '' OR attgenerated <> '' OR typdefault IS NOT NULL,
            'serial', attidentity = ''
                AND pg_catalog.pg_get_serial_sequence(this_table.oid::regclass::text, attname) IS NOT NULL
        )
        FROM pg_catalog.pg_attribute JOIN pg_catalog.pg_type ON pg_type.oid = atttypid
        WHERE attrelid = this_table.oid AND attnum > 0 AND NOT attisdropped
        ORDER BY attnum
    ),
    'indexes', ARRAY(
        SELECT pg_catalog.json_build_object(
            'name', relname, 'shape', {SHAPE}, 'usable', {USABLE}, 'sql', indexrelid::regclass
        )
        FROM pg_catalog.pg_index JOIN pg_catalog.pg_class ON pg_class.oid = indexrelid
        WHERE indrelid = this_table.oid
        ORDER BY relname
    ),
    'triggers', ARRAY(
        SELECT pg_catalog.json_build_object(
            'name', tgname,
            'type', tgtype,
            'new_rows', tgnewtable,
            'source', prosrc,
            'function', proname,
            'enabled', tgenabled IN ('O', 'A')
        )
        FROM pg_catalog.pg_trigger JOIN pg_catalog.pg_proc ON pg_proc.oid = tgfoid
        WHERE tgrelid = this_table.oid AND NOT tgisinternal
        ORDER BY tgname
    ),
    'partitioned_by', ARRAY(
        SELECT coalesce(attname, '')
        FROM pg_catalog.pg_partitioned_table CROSS JOIN pg_catalog.unnest(partattrs) AS key
            LEFT JOIN pg_catalog.pg_attribute ON attrelid = partrelid AND attnum = key
        WHERE partrelid = this_table.oid
    ),
    'storage', ARRAY(
        SELECT pg_catalog.split_part(option, '=', 1)
        FROM pg_catalog.unnest(reloptions) AS option
        ORDER BY 1
    ),
    'row_security', CASE
        WHEN pg_catalog.row_security_active(this_table.oid) THEN pg_catalog.json_build_object(
        'role', current_user,
        'commands', ARRAY(
            SELECT command FROM pg_catalog.unnest(ARRAY['SELECT', 'UPDATE', 'DELETE']) AS command
            WHERE pg_catalog.has_table_privilege(this_table.oid, command)
                OR (command <> 'DELETE' AND pg_catalog.has_any_column_privilege(this_table.oid, command))
        ),
        'policies', ARRAY(
            SELECT pg_catalog.json_build_object(
                'name', polname,
                'command', CASE polcmd
                    WHEN 'r' THEN 'SELECT' WHEN 'a' THEN 'INSERT'
                    WHEN 'w' THEN 'UPDATE' WHEN 'd' THEN 'DELETE'
                    ELSE 'ALL'
                END,
                'permissive', polpermissive,
                'applies', EXISTS (
                    SELECT FROM pg_catalog.unnest(polroles) AS role
                    WHERE role = 0::oid OR pg_catalog.pg_has_role(role, 'USAGE')
                ),
                'condition', pg_catalog.pg_get_expr(polqual, polrelid)
            )
            FROM pg_catalog.pg_policy
            WHERE polrelid = this_table.oid
            ORDER BY polname
        )
    ) END
)::text
FROM pg_catalog.pg_class AS this_table
WHERE oid = pg_catalog.to_regclass($1)::oid
""",
)
"""Takes a quoted name, and returns one JSON document, or no row if there is nothing of that name."""


@dataclass(frozen=True, slots=True)
class ObservedColumn:
    """A column of a live table."""

    name: str
    """Its name."""
    type: str
    """Its type as `format_type` spells it."""
    nullable: bool
    """Whether it takes NULL."""
    filled: bool
    """Whether it or its domain has a default, or it is an identity or generated."""
    serial: bool = False
    """Whether its default is a sequence of its own."""
    nullable_domain: bool = True
    """Whether its type takes NULL: a domain may not."""


@dataclass(frozen=True, slots=True)
class ObservedIndex:
    """An index of a live table."""

    name: str
    """Its name, unquoted."""
    shape: str
    """What `Index.shape` is compared with."""
    usable: bool
    """Whether queries may use it and it checks uniqueness: false after an interrupted concurrent build."""
    sql: str = ""
    """Its name as SQL text, with its schema if the search path does not lead there."""


@dataclass(frozen=True, slots=True)
class ObservedTrigger:
    """A user's trigger on a live table."""

    name: str
    """Its name, unquoted."""
    type: int
    """`pg_trigger.tgtype`."""
    new_rows: str | None
    """The name of its transition table of new rows."""
    source: str
    """The body of its function."""
    enabled: bool
    """Whether it fires for an ordinary session."""
    function: str = ""
    """The name of its function, unquoted and without its schema."""


@dataclass(frozen=True, slots=True)
class ObservedPolicy:
    """A row-level security policy of a live table."""

    name: str
    """Its name, unquoted."""
    command: str
    """SELECT, INSERT, UPDATE, DELETE or ALL."""
    permissive: bool
    """Whether it shows rows (AS PERMISSIVE) or hides those that others show (AS RESTRICTIVE)."""
    applies: bool
    """Whether it is for the current role, or for one that it is a member of."""
    condition: str | None
    """Its USING expression; a permissive policy without one shows nothing."""


@dataclass(frozen=True, slots=True)
class ObservedRowSecurity:
    """The row-level security that is in force for the current role: it is no owner, or that is FORCEd."""

    role: str
    """The current role."""
    commands: tuple[str, ...]
    """Those of SELECT, UPDATE and DELETE that the role is granted: without the grant they fail loudly."""
    policies: tuple[ObservedPolicy, ...]
    """All of the table's policies, also of other roles."""


@dataclass(frozen=True, slots=True)
class ObservedTable:
    """A live table."""

    columns: tuple[ObservedColumn, ...]
    """Its columns, in order."""
    indexes: tuple[ObservedIndex, ...]
    """Its indexes."""
    triggers: tuple[ObservedTrigger, ...]
    """Its triggers, constraints' own ones excepted."""
    partitioned_by: tuple[str, ...] = ()
    """The columns of its partition key, "" for an expression; none if it is not partitioned."""
    kind: str = "r"
    """`pg_class.relkind`: r for a table, p for a partitioned one, v for a view."""
    row_security: ObservedRowSecurity | None = None
    """None if the current role sees every row."""
    storage: tuple[str, ...] = ()
    """The names of the storage parameters that are set."""

    @classmethod
    def read(cls, document: str) -> "ObservedTable":
        """Read the JSON document that `OBSERVE` returns."""
        facts = json.loads(document)
        return cls(
            tuple(ObservedColumn(**column) for column in facts["columns"]),
            tuple(ObservedIndex(**index) for index in facts["indexes"]),
            tuple(ObservedTrigger(**trigger) for trigger in facts["triggers"]),
            tuple(facts["partitioned_by"]),
            kind=facts["kind"],
            row_security=_row_security(facts["row_security"]),
            storage=tuple(facts["storage"]),
        )


def _row_security(facts: dict[str, Any] | None) -> ObservedRowSecurity | None:
    if facts is None:
        return None
    policies = tuple(ObservedPolicy(**policy) for policy in facts["policies"])
    return ObservedRowSecurity(facts["role"], tuple(facts["commands"]), policies)
