"""The SQL text that makes an outbox table, and the one that removes it."""

# ruff: noqa: S608 -- what is put into the SQL is a constant of ours, or quoted by outbox.table

from outbox.schema.indexes import array_sql, missing_indexes_sql
from outbox.schema.locking import lock_sql
from outbox.schema.quoting import dollar_quoted
from outbox.schema.trigger import DEFAULT_CHANNEL, FUNCTION_SUFFIX, triggers_sql
from outbox.table import COLUMNS, DEFAULT_TABLE, TableName, quote_literal


def create_sql(table_name: str | TableName = DEFAULT_TABLE, channel: str = DEFAULT_CHANNEL) -> str:
    """One statement that makes the table with its indexes and trigger, or what is missing of the last two.

    It may run any number of times, also at once, and on a complete table it locks nobody out. A table that
    lacks columns is refused: `upgrade_sql` brings that to the present.
    """
    table = TableName.parse(table_name)
    columns = ",\n        ".join(column.definition for column in COLUMNS)
    body = f"""
DECLARE
    this_table regclass;
    absent text;
    shapes text[];
BEGIN{lock_sql(table)}
    CREATE TABLE IF NOT EXISTS {table.sql} (
        {columns}
    );
    this_table := {quote_literal(table.sql)};
{_refuse_older_sql(table)}{missing_indexes_sql(table)}{triggers_sql(table, channel)}END
"""
    return f"DO {dollar_quoted(body, 'outbox')};"


def drop_sql(table_name: str | TableName = DEFAULT_TABLE) -> str:
    """One statement that removes the table, with every message in it, and all that belongs to it."""
    table = TableName.parse(table_name)
    body = f"""
BEGIN{lock_sql(table)}
    DROP TABLE IF EXISTS {table.sql};
    DROP FUNCTION IF EXISTS {table.derived_sql(FUNCTION_SUFFIX)}();
END
"""
    return f"DO {dollar_quoted(body, 'outbox')};"


def _refuse_older_sql(table: TableName) -> str:
    return f"""
    SELECT string_agg(expected, ', ') INTO absent
    FROM unnest({array_sql([column.name for column in COLUMNS])}) AS expected
    WHERE NOT EXISTS (
        SELECT FROM pg_attribute
        WHERE attrelid = this_table AND attname = expected AND NOT attisdropped
    );
    IF absent IS NOT NULL THEN
        RAISE EXCEPTION USING
            MESSAGE = {quote_literal(f"table {table.sql} exists and lacks columns ")} || absent,
            HINT = 'Run outbox.schema.upgrade_sql() to bring it to the present.';
    END IF;
"""
