"""The table's indexes in PL/pgSQL, told by their shape: one that a user built or renamed will do."""

# ruff: noqa: S608 -- what is put into the SQL is a constant of ours, or quoted by outbox.table

from outbox.schema.locking import Step
from outbox.schema.quoting import array_sql
from outbox.table import INDEXES, Index, TableName, quote_identifier, quote_literal

SHAPE = """CASE WHEN indisunique THEN 'UNIQUE ' ELSE '' END
            || pg_catalog.regexp_replace(
                substring(pg_catalog.pg_get_indexdef(indexrelid) FROM '.* USING (.*)'),
                ' WITH [(][^)]*[)]', ''
            )"""
"""The SQL expression over `pg_index` that `Index.shape` is compared with; storage options do not count."""

USABLE = "indisvalid AND indisready"
"""The condition on a row of `pg_index` whose index is not the rest of an interrupted concurrent build."""


def missing_index_steps(table: TableName) -> list[Step]:
    """Build what is missing. CREATE INDEX IF NOT EXISTS would lock writers out for nothing."""
    return [
        Step(_missing_sql(index), f"        {index_sql(table, index)};\n", "SHARE ROW EXCLUSIVE")
        for index in INDEXES
    ]


def _missing_sql(index: Index) -> str:
    return f"""{quote_literal(index.shape)} <> ALL (ARRAY(
        SELECT
            {SHAPE}
        FROM pg_catalog.pg_index
        WHERE indrelid = this_table AND {USABLE}
    )){_possible_sql(index)}"""


def _possible_sql(index: Index) -> str:
    # Postgres keeps rows unique within partitions only: the columns that tell partitions apart must be keys.
    if not index.unique:
        return ""
    return f""" AND NOT EXISTS (
        SELECT FROM pg_catalog.pg_partitioned_table
        WHERE partrelid = this_table AND NOT partattrs::smallint[] OPERATOR(pg_catalog.<@) ARRAY(
            SELECT attnum FROM pg_catalog.pg_attribute
            WHERE attrelid = this_table AND attname = ANY ({array_sql(list(index.keys))})
        )
    )"""


def index_sql(table: TableName, index: Index, *, concurrently: bool = False) -> str:
    """The CREATE INDEX of one of them."""
    kind = ("UNIQUE INDEX" if index.unique else "INDEX") + (" CONCURRENTLY" if concurrently else "")
    name = quote_identifier(table.derived(index.suffix))
    return f"CREATE {kind} {name} ON {table.sql} ({', '.join(index.keys)})\n        WHERE {index.predicate}"
