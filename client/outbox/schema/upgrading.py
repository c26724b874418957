"""The SQL text that brings an older outbox table to the present, the original library's included."""

# ruff: noqa: S608 -- what is put into the SQL is a constant of ours, or quoted by outbox.table

from datetime import timedelta

from outbox.schema.creation import refuse_other_kinds_sql
from outbox.schema.indexes import SHAPE, USABLE, missing_index_steps
from outbox.schema.locking import LOCK_ATTEMPTS, LOCK_TIMEOUT, STEP_VARIABLES, Step, lock_sql, steps_sql
from outbox.schema.quoting import array_sql, dollar_quoted
from outbox.schema.trigger import DEFAULT_CHANNEL, trigger_steps
from outbox.table import (
    COLUMNS,
    DEFAULT_TABLE,
    INDEXES,
    STORAGE,
    TableName,
    quote_identifier,
    quote_literal,
)

LEGACY_PENDING = "outbox_pending_idx"
LEGACY_CLEANUP = "outbox_cleanup_idx"
LEGACY_TRIGGER = "outbox_notify_trigger"
LEGACY_FUNCTION = "notify_outbox_insert"


def upgrade_sql(
    table_name: str | TableName = DEFAULT_TABLE,
    channel: str = DEFAULT_CHANNEL,
    *,
    notify: bool = True,
    lock_timeout: timedelta = LOCK_TIMEOUT,
    lock_attempts: int = LOCK_ATTEMPTS,
) -> str:
    """One statement that brings a table to the present in place, keeping every row. It may run again.

    Without `notify` the table's triggers are removed.

    On a table that is up to date it locks nothing. Otherwise it waits for its lock at most `lock_timeout` at
    a time (the session's own, if set; a bit longer than `deadlock_timeout` if vacuum has it), lets emitters
    through, and tries again, `lock_attempts` times. It then holds the lock while it rewrites the table (`id`
    becomes a bigint, each old row gets a `message_id`) and builds the indexes. If that takes too long,
    `outbox schema upgrade` builds the indexes CONCURRENTLY.
    """
    table = TableName.parse(table_name)
    steps = [
        *_column_steps(table),
        *_stale_index_steps(table),
        *missing_index_steps(table),
        _legacy_trigger_step(table),
        *trigger_steps(table, channel, notify=notify),
        _storage_step(table),
    ]
    return _statement(table, steps, lock_timeout, lock_attempts)


def upgrade_columns_sql(table_name: str | TableName = DEFAULT_TABLE) -> str:
    """The part of `upgrade_sql` that the indexes need: the columns."""
    table = TableName.parse(table_name)
    return _statement(table, _column_steps(table), LOCK_TIMEOUT, LOCK_ATTEMPTS)


def upgrade_storage_sql(table_name: str | TableName = DEFAULT_TABLE) -> str:
    """The part of `upgrade_sql` that sets storage parameters."""
    table = TableName.parse(table_name)
    return _statement(table, [_storage_step(table)], LOCK_TIMEOUT, LOCK_ATTEMPTS)


def _statement(table: TableName, steps: list[Step], lock_timeout: timedelta, lock_attempts: int) -> str:
    body = f"""
DECLARE{STEP_VARIABLES}
    sequence text;
    next_id bigint;
BEGIN{lock_sql(table)}{_refuse_missing_sql(table)}{refuse_other_kinds_sql(table)}\
{steps_sql(table, steps, lock_timeout, lock_attempts)}END
"""
    return f"DO {dollar_quoted(body, 'outbox')};"


def _refuse_missing_sql(table: TableName) -> str:
    return f"""
    this_table := pg_catalog.to_regclass({quote_literal(table.sql)});
    IF this_table IS NULL THEN
        RAISE EXCEPTION USING
            MESSAGE = {quote_literal(f"table {table.sql} does not exist")},
            HINT = 'Run outbox.schema.create_sql() to make it.';
    END IF;
"""


def _column_steps(table: TableName) -> list[Step]:
    return [
        _columns_step(table),
        _defaults_step(table),
        _nullable_step(table),
        _not_null_step(table),
        _identity_step(table),
    ]


def _columns_step(table: TableName) -> Step:
    clauses = [
        f"({quote_literal(column.name)}, NULL, {quote_literal(f'ADD COLUMN {column.definition}')})"
        for column in COLUMNS
        if not column.identity
    ]
    clauses += [
        f"({quote_literal(column.name)}, {quote_literal(column.type)},"
        f" {quote_literal(f'ALTER COLUMN {column.name} TYPE {column.type}')})"
        for column in COLUMNS
        if column.identity
    ]
    differing = f"""FROM (VALUES
        {_lines(clauses)}
        ) AS expected (name, type, clause)
        WHERE NOT EXISTS (
            SELECT FROM pg_catalog.pg_attribute
            WHERE attrelid = this_table AND attname = name AND NOT attisdropped
                AND (type IS NULL OR pg_catalog.format_type(atttypid, NULL) = type)
        )"""
    return Step(
        f"EXISTS (\n        SELECT {differing}\n    )",
        f"""        -- All in one statement, so that the table is rewritten once.
        EXECUTE (SELECT {quote_literal(f"ALTER TABLE {table.sql} ")} || pg_catalog.string_agg(clause, ', ')
        {differing});
""",
    )


def _defaults_step(table: TableName) -> Step:
    defaults = [
        f"({quote_literal(column.name)}, {quote_literal(column.default)})"
        for column in COLUMNS
        if column.default is not None
    ]
    lacking = f"""FROM (VALUES
        {_lines(defaults)}
        ) AS expected (name, expression)
        JOIN pg_catalog.pg_attribute ON attrelid = this_table AND attname = name AND NOT atthasdef"""
    alter = quote_literal(f"ALTER TABLE {table.sql} ALTER COLUMN ")
    return Step(
        f"EXISTS (\n        SELECT {lacking}\n    )",
        f"""        FOR item IN SELECT name, expression {lacking} LOOP
            EXECUTE {alter} || item.name || ' SET DEFAULT ' || item.expression;
        END LOOP;
""",
    )


def _nullable_step(table: TableName) -> Step:
    return _altering_step(
        table, [column.name for column in COLUMNS if column.nullable], "attnotnull", "DROP NOT NULL"
    )


def _not_null_step(table: TableName) -> Step:
    required = [column for column in COLUMNS if not column.nullable]
    updates = "".join(
        f"        UPDATE {table.sql} SET {column.name} = DEFAULT WHERE {column.name} IS NULL;\n"
        for column in required
        if column.default is not None
    )
    step = _altering_step(table, [column.name for column in required], "NOT attnotnull", "SET NOT NULL")
    return Step(step.needed, updates + step.body)


def _altering_step(table: TableName, columns: list[str], condition: str, change: str) -> Step:
    """One ALTER TABLE that makes the same change to each of the columns that meets the condition."""
    differing = f"""FROM pg_catalog.pg_attribute
        WHERE attrelid = this_table AND {condition} AND NOT attisdropped
            AND attname = ANY ({array_sql(columns)})"""
    return Step(
        f"EXISTS (\n        SELECT {differing}\n    )",
        f"""        EXECUTE (
            SELECT {quote_literal(f"ALTER TABLE {table.sql} ")}
                || pg_catalog.string_agg('ALTER COLUMN ' || attname::text || ' {change}', ', ')
            {differing}
        );
""",
    )


def _identity_step(table: TableName) -> Step:
    numbered = f"ALTER TABLE {table.sql} ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY"
    sequence = f"pg_catalog.pg_get_serial_sequence({quote_literal(table.sql)}, 'id')"
    return Step(
        f"""EXISTS (
        SELECT FROM pg_catalog.pg_attribute
        WHERE attrelid = this_table AND attname = 'id'
            AND attidentity = '' AND ({sequence} IS NOT NULL OR NOT atthasdef)
    )""",
        f"""        -- A serial's sequence may end at 2147483647 and needs its own grant. Other defaults stay.
        sequence := {sequence};
        SELECT coalesce(pg_catalog.max(id), 0) + 1 INTO next_id FROM {table.sql};
        ALTER TABLE {table.sql} ALTER COLUMN id DROP DEFAULT;
        IF sequence IS NOT NULL THEN
            next_id := greatest(next_id, pg_catalog.nextval(sequence));
            EXECUTE 'DROP SEQUENCE ' || sequence;
        END IF;
        EXECUTE {quote_literal(numbered)} || ' (START WITH ' || next_id::text || ')';
""",
    )


def _stale_index_steps(table: TableName) -> list[Step]:
    ours = [table.derived(index.suffix) for index in INDEXES]
    sent = table.derived("sent_idx")
    stale = f"""FROM pg_catalog.pg_index JOIN pg_catalog.pg_class ON pg_class.oid = indexrelid
        WHERE indrelid = this_table
            AND relname = ANY ({array_sql([*ours, LEGACY_PENDING, LEGACY_CLEANUP])})
            AND NOT ({USABLE} AND {SHAPE} = ANY ({array_sql([index.shape for index in INDEXES])}))"""
    renamed = quote_literal(f" RENAME TO {quote_identifier(sent)}")
    cleanup = f"""FROM pg_catalog.pg_index JOIN pg_catalog.pg_class ON pg_class.oid = indexrelid
        WHERE indrelid = this_table AND relname = {quote_literal(LEGACY_CLEANUP)}
            AND relname <> {quote_literal(sent)}"""
    return [
        Step(
            f"EXISTS (\n        SELECT {stale}\n    )",
            f"""        -- Ours or the original library's by name, of another shape or not built to the end.
        FOR item IN SELECT indexrelid::regclass::text AS index {stale} LOOP
            EXECUTE 'DROP INDEX ' || item.index;
        END LOOP;
""",
        ),
        Step(
            f"EXISTS (\n        SELECT {cleanup}\n    )",
            f"""        -- The original library's index for its cleanup is the one that retention needs.
        FOR item IN SELECT indexrelid::regclass::text AS index {cleanup} LOOP
            IF EXISTS (
                SELECT FROM pg_catalog.pg_index JOIN pg_catalog.pg_class ON pg_class.oid = indexrelid
                WHERE indrelid = this_table AND relname = {quote_literal(sent)}
            ) THEN
                EXECUTE 'DROP INDEX ' || item.index;
            ELSE
                EXECUTE 'ALTER INDEX ' || item.index || {renamed};
            END IF;
        END LOOP;
""",
        ),
    ]


def _legacy_trigger_step(table: TableName) -> Step:
    legacy = f"""FROM pg_catalog.pg_trigger JOIN pg_catalog.pg_proc ON pg_proc.oid = tgfoid
        WHERE tgrelid = this_table AND tgname = '{LEGACY_TRIGGER}' AND proname = '{LEGACY_FUNCTION}'"""
    return Step(
        f"EXISTS (\n        SELECT {legacy}\n    )",
        f"""        FOR item IN SELECT tgfoid, tgfoid::regprocedure::text AS function {legacy} LOOP
            DROP TRIGGER {LEGACY_TRIGGER} ON {table.sql};
            -- Another table of the original library may still use it.
            IF NOT EXISTS (SELECT FROM pg_catalog.pg_trigger WHERE tgfoid = item.tgfoid) THEN
                EXECUTE 'DROP FUNCTION ' || item.function;
            END IF;
        END LOOP;
""",
    )


def _storage_step(table: TableName) -> Step:
    expected = [
        f"({quote_literal(parameter.name)}, {quote_literal(parameter.definition)})" for parameter in STORAGE
    ]
    # What its owner has chosen stays. A partitioned table takes none.
    missing = f"""FROM (VALUES
        {_lines(expected)}
        ) AS expected (name, definition)
        JOIN pg_catalog.pg_class ON oid = this_table AND relkind = 'r'
        WHERE NOT EXISTS (
            SELECT FROM pg_catalog.unnest(reloptions) AS option
            WHERE pg_catalog.split_part(option, '=', 1) = name
        )"""
    return Step(
        f"EXISTS (\n        SELECT {missing}\n    )",
        f"""        EXECUTE (
            SELECT {quote_literal(f"ALTER TABLE {table.sql} SET (")}
                || pg_catalog.string_agg(definition, ', ') || ')'
            {missing}
        );
""",
        "SHARE UPDATE EXCLUSIVE",
    )


def _lines(items: list[str]) -> str:
    return ",\n        ".join(items)
