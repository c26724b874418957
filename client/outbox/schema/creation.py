"""The SQL text that makes an outbox table, and the one that removes it."""

# ruff: noqa: S608 -- what is put into the SQL is a constant of ours, or quoted by outbox.table

from outbox.schema.indexes import missing_index_steps
from outbox.schema.locking import STEP_VARIABLES, acquire_sql, lock_sql, steps_sql
from outbox.schema.quoting import array_sql, creation_name_sql, dollar_quoted
from outbox.schema.trigger import DEFAULT_CHANNEL, FUNCTION_SUFFIX, trigger_steps
from outbox.table import COLUMNS, DEFAULT_TABLE, STORAGE, TableName, quote_literal


def create_sql(
    table_name: str | TableName = DEFAULT_TABLE, channel: str = DEFAULT_CHANNEL, *, notify: bool = True
) -> str:
    """One statement that makes the table with its indexes and triggers, or what is missing of the last two.

    Without `notify` the table gets no triggers, and those of ours that it has are removed.

    It may run any number of times, also at once, and on a complete table it locks nobody out. The storage
    parameters of a table that exists are left alone. A table that lacks columns is refused: `upgrade_sql`
    brings both to the present.
    """
    table = TableName.parse(table_name)
    columns = ",\n            ".join(column.definition for column in COLUMNS)
    storage = ", ".join(parameter.definition for parameter in STORAGE)
    body = f"""
DECLARE{STEP_VARIABLES}
    absent text;
BEGIN{lock_sql(table)}
    IF pg_catalog.to_regclass({creation_name_sql(table, table.sql)}) IS NULL THEN
        CREATE TABLE {table.sql} (
            {columns}
        ) WITH ({storage});
    END IF;
    this_table := {quote_literal(table.sql)}::regclass;
{refuse_other_kinds_sql(table)}{_refuse_older_sql(table)}\
{steps_sql(table, [*missing_index_steps(table), *trigger_steps(table, channel, notify=notify)])}END
"""
    return f"DO {dollar_quoted(body, 'outbox')};"


def drop_sql(table_name: str | TableName = DEFAULT_TABLE) -> str:
    """One statement that removes the table, with every message in it, and all that belongs to it.

    It waits for its lock as `upgrade_sql` does.
    """
    table = TableName.parse(table_name)
    body = f"""
DECLARE{STEP_VARIABLES}
BEGIN{lock_sql(table)}
    this_table := pg_catalog.to_regclass({quote_literal(table.sql)});
    lock_mode := 'ACCESS EXCLUSIVE';
    IF this_table IS NOT NULL THEN
{acquire_sql(table)}    END IF;
    DROP TABLE IF EXISTS {table.sql};
    DROP FUNCTION IF EXISTS {table.derived_sql(FUNCTION_SUFFIX)}();
END
"""
    return f"DO {dollar_quoted(body, 'outbox')};"


def refuse_other_kinds_sql(table: TableName) -> str:
    """PL/pgSQL that refuses a view, a foreign table and whatever else is no table."""
    return f"""
    IF (SELECT relkind FROM pg_catalog.pg_class WHERE oid = this_table) NOT IN ('r', 'p') THEN
        RAISE EXCEPTION USING
            MESSAGE = {quote_literal(f"{table.sql} is not a table")},
            HINT = 'Give the name of the table itself, not of a view on it.';
    END IF;
"""


def _refuse_older_sql(table: TableName) -> str:
    return f"""
    SELECT pg_catalog.string_agg(expected, ', ') INTO absent
    FROM pg_catalog.unnest({array_sql([column.name for column in COLUMNS])}) AS expected
    WHERE NOT EXISTS (
        SELECT FROM pg_catalog.pg_attribute
        WHERE attrelid = this_table AND attname = expected AND NOT attisdropped
    );
    IF absent IS NOT NULL THEN
        RAISE EXCEPTION USING
            MESSAGE = {quote_literal(f"table {table.sql} exists and lacks columns ")} || absent,
            HINT = 'Run outbox.schema.upgrade_sql() to bring it to the present.';
    END IF;
"""
