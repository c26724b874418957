"""The table's indexes in PL/pgSQL, told by their shape: one that a user built or renamed will do."""

# ruff: noqa: S608 -- what is put into the SQL is a constant of ours, or quoted by outbox.table

from outbox.table import INDEXES, Index, TableName, quote_identifier, quote_literal

SHAPE = """CASE WHEN indisunique THEN 'UNIQUE ' ELSE '' END
            || regexp_replace(
                substring(pg_get_indexdef(indexrelid) FROM '.* USING (.*)'), ' WITH [(][^)]*[)]', ''
            )"""
"""The SQL expression over `pg_index` that `Index.shape` is compared with; storage options do not count."""

USABLE = "indisvalid AND indisready"
"""The condition on a row of `pg_index` whose index is not the rest of an interrupted concurrent build."""


def missing_indexes_sql(table: TableName) -> str:
    """PL/pgSQL that builds what is missing. CREATE INDEX IF NOT EXISTS would lock writers out for nothing."""
    return f"""
    shapes := ARRAY(
        SELECT
            {SHAPE}
        FROM pg_index
        WHERE indrelid = this_table AND {USABLE}
    );
""" + "".join(
        f"""    IF {quote_literal(index.shape)} <> ALL (shapes) THEN
        {index_sql(table, index)};
    END IF;
"""
        for index in INDEXES
    )


def index_sql(table: TableName, index: Index) -> str:
    """The CREATE INDEX of one of them."""
    kind = "UNIQUE INDEX" if index.unique else "INDEX"
    name = quote_identifier(table.derived(index.suffix))
    return f"CREATE {kind} {name} ON {table.sql} ({', '.join(index.keys)})\n        WHERE {index.predicate}"


def array_sql(texts: list[str]) -> str:
    """The texts as an SQL array, one a line."""
    items = ",\n                ".join(map(quote_literal, texts))
    return f"ARRAY[\n                {items}\n            ]"
