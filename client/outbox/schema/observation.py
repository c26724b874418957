"""What a live table is like: one query for all the facts, and the types they are read into."""

# ruff: noqa: S608 -- what is put into the SQL is a constant of ours, or quoted by outbox.table

import json
from dataclasses import dataclass

from outbox.drivers.statement import Statement
from outbox.schema.indexes import SHAPE, USABLE

OBSERVE = Statement.of(
    "observe_table",
    f"""
SELECT json_build_object(
    'columns', ARRAY(
        SELECT json_build_object(
            'name', attname,
            'type', format_type(atttypid, atttypmod),
            'nullable', NOT attnotnull,
            'filled', atthasdef OR attidentity <> ''
        )
        FROM pg_attribute
        WHERE attrelid = this_table.oid AND attnum > 0 AND NOT attisdropped
        ORDER BY attnum
    ),
    'indexes', ARRAY(
        SELECT json_build_object('name', relname, 'shape', {SHAPE}, 'usable', {USABLE})
        FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
        WHERE indrelid = this_table.oid
        ORDER BY relname
    ),
    'triggers', ARRAY(
        SELECT json_build_object(
            'name', tgname,
            'type', tgtype,
            'new_rows', tgnewtable,
            'source', prosrc,
            'enabled', tgenabled IN ('O', 'A')
        )
        FROM pg_trigger JOIN pg_proc ON pg_proc.oid = tgfoid
        WHERE tgrelid = this_table.oid AND NOT tgisinternal
        ORDER BY tgname
    )
)::text
FROM pg_class AS this_table
WHERE oid = to_regclass($1) AND relkind IN ('r', 'p')
""",
)
"""Takes the quoted name of a table, and returns one JSON document, or no row where there is no such table."""


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
    """Whether it has a default or is an identity."""


@dataclass(frozen=True, slots=True)
class ObservedIndex:
    """An index of a live table."""

    name: str
    """Its name, unquoted."""
    shape: str
    """What `Index.shape` is compared with."""
    usable: bool
    """Whether queries may use it and it checks uniqueness: false after an interrupted concurrent build."""


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


@dataclass(frozen=True, slots=True)
class ObservedTable:
    """A live table."""

    columns: tuple[ObservedColumn, ...]
    """Its columns, in order."""
    indexes: tuple[ObservedIndex, ...]
    """Its indexes."""
    triggers: tuple[ObservedTrigger, ...]
    """Its triggers, constraints' own ones excepted."""

    @classmethod
    def read(cls, document: str) -> "ObservedTable":
        """Read the JSON document that `OBSERVE` returns."""
        facts = json.loads(document)
        return cls(
            tuple(ObservedColumn(**column) for column in facts["columns"]),
            tuple(ObservedIndex(**index) for index in facts["indexes"]),
            tuple(ObservedTrigger(**trigger) for trigger in facts["triggers"]),
        )
