"""What is wrong with a live table: a judgement of the facts that were observed, and of nothing else."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from outbox.schema.observation import ObservedColumn, ObservedIndex, ObservedTable, ObservedTrigger
from outbox.schema.problem import Problem, ProblemKind
from outbox.schema.row_security import row_security_problems
from outbox.schema.trigger import (
    FUNCTION_SUFFIX,
    TRIGGERS,
    Trigger,
    former_function_source,
    function_source,
)
from outbox.table import COLUMNS, INDEXES, STORAGE, Column, Index, TableName, quote_identifier


@dataclass(frozen=True, slots=True)
class Expected:
    """What a table has to be like."""

    table: TableName
    """Its name."""
    function_source: str
    """The body of its triggers' function."""
    columns: tuple[Column, ...] = COLUMNS
    """The columns it needs; it may have others."""
    indexes: tuple[Index, ...] = INDEXES
    """The indexes it needs; it may have others."""
    triggers: tuple[Trigger, ...] = TRIGGERS
    """The triggers it needs; it may have others. Without any it must not have ours either."""
    former_source: str | None = None
    """The body that the function had in the version before."""

    @classmethod
    def of(cls, table_name: str | TableName, channel: str, *, notify: bool = True) -> "Expected":
        table = TableName.parse(table_name)
        source, former = function_source(channel), former_function_source(channel)
        return cls(table, source, triggers=TRIGGERS if notify else (), former_source=former)


_UPGRADE = "run outbox.schema.upgrade_sql()"
_KINDS = {
    "v": "a view",
    "m": "a materialized view",
    "f": "a foreign table",
    "S": "a sequence",
    "i": "an index",
}
_BEFORE_INSERT_OF_ROW = 0b111  # the bits of pg_trigger.tgtype
_WIDENED = ("smallint", "integer")


def judged(
    rows: Sequence[tuple[Any, ...]], table_name: str | TableName, channel: str, *, notify: bool = True
) -> list[Problem]:
    """The problems told by what `OBSERVE` returned."""
    observed = ObservedTable.read(rows[0][0]) if rows else None
    return problems(observed, Expected.of(table_name, channel, notify=notify))


def problems(observed: ObservedTable | None, expected: Expected) -> list[Problem]:
    """All that is wrong with the table. What it has beyond the expected is the user's own business."""
    table = expected.table
    if observed is None:
        return [
            _problem(table, "missing_table", table.name, "it does not exist; run outbox.schema.create_sql()")
        ]
    if observed.kind not in ("r", "p"):
        kind = _KINDS.get(observed.kind, "no table")
        text = f"it is {kind}; give the name of the table itself"
        return [_problem(table, "not_a_table", table.name, text)]
    return [
        *_column_problems(observed, expected),
        *_extra_column_problems(observed, expected),
        *_key_problems(observed, expected),
        *_index_problems(observed, expected),
        *_trigger_problems(observed, expected),
        *_unwanted_trigger_problems(observed, expected),
        *_storage_problems(observed, table),
        *row_security_problems(observed, table),
    ]


def _column_problems(observed: ObservedTable, expected: Expected) -> Iterator[Problem]:
    live = {column.name: column for column in observed.columns}
    for column in expected.columns:
        name = quote_identifier(column.name)
        if column.name not in live:
            text = f"column {name} is missing; {_UPGRADE}"
            yield _problem(expected.table, "missing_column", column.name, text)
            continue
        yield from _flaws(expected.table, column, live[column.name])


def _extra_column_problems(observed: ObservedTable, expected: Expected) -> Iterator[Problem]:
    if any(
        live.enabled and live.type & _BEFORE_INSERT_OF_ROW == _BEFORE_INSERT_OF_ROW
        for live in observed.triggers
    ):
        return  # it may give the column its value
    known = {column.name for column in expected.columns}
    for live in observed.columns:
        takes_null = live.nullable and live.nullable_domain
        if live.name not in known and not takes_null and not live.filled:
            name = quote_identifier(live.name)
            column = f"ALTER TABLE {expected.table.sql} ALTER COLUMN {name}"
            cure = (
                f"{column} DROP NOT NULL, or SET DEFAULT" if live.nullable_domain else f"{column} SET DEFAULT"
            )
            text = (
                f"column {name} is NOT NULL and has no default, so that every emit fails; "
                f"run {cure} with a fitting value"
            )
            yield _problem(expected.table, "unfilled_column", live.name, text)


def _flaws(table: TableName, column: Column, live: ObservedColumn) -> Iterator[Problem]:
    name = quote_identifier(column.name)
    if live.type not in column.accepted:
        cure = _type_cure(table, column, live)
        text = f"column {name} is {live.type} and must be {column.type}; {cure}"
        yield _problem(table, "wrong_type", column.name, text)
    if live.nullable and not column.nullable:
        text = f"column {name} takes NULL and must not; {_UPGRADE}"
        yield _problem(table, "missing_not_null", column.name, text)
    if column.nullable and not live.nullable:
        text = f"column {name} must take NULL; {_UPGRADE}"
        yield _problem(table, "unwanted_not_null", column.name, text)
    if (column.identity or column.default is not None) and not live.filled:
        wanted = "identity" if column.identity else f"default {column.default}"
        text = f"column {name} lacks its {wanted}; {_UPGRADE}"
        yield _problem(table, "missing_default", column.name, text)


def _type_cure(table: TableName, column: Column, live: ObservedColumn) -> str:
    if column.identity and live.type in _WIDENED:
        return _UPGRADE
    # What becomes of the values is for a person to decide.
    return f"run ALTER TABLE {table.sql} ALTER COLUMN {column.name} TYPE {column.type} with a fitting USING"


def _key_problems(observed: ObservedTable, expected: Expected) -> Iterator[Problem]:
    for column in expected.columns:
        if column.identity and not any(_identifies(index, column) for index in observed.indexes):
            text = (
                f"column {quote_identifier(column.name)} is no primary key; "
                f"run ALTER TABLE {expected.table.sql} ADD PRIMARY KEY ({column.name})"
            )
            yield _problem(expected.table, "missing_key", column.name, text)


def _identifies(index: ObservedIndex, column: Column) -> bool:
    # A partitioned table's key has the partition's columns behind it.
    heads = (f"UNIQUE btree ({column.name})", f"UNIQUE btree ({column.name}, ")
    return index.usable and index.shape.startswith(heads) and " WHERE " not in index.shape


def _index_problems(observed: ObservedTable, expected: Expected) -> Iterator[Problem]:
    for index in expected.indexes:
        # Such an index cannot exist: a table partitioned by other columns has no timers.
        if index.unique and not set(observed.partitioned_by) <= set(index.keys):
            continue
        alike = [live for live in observed.indexes if live.shape == index.shape]
        if not alike:
            name = expected.table.derived(index.suffix)
            text = f"index {quote_identifier(name)}, {index.shape}, is missing; {_UPGRADE}"
            yield _problem(expected.table, "missing_index", name, text, slows_only=not index.essential)
        elif not any(live.usable for live in alike):
            name = alike[0].name
            text = f"index {quote_identifier(name)} was not built to its end; drop it and {_UPGRADE}"
            yield _problem(expected.table, "invalid_index", name, text, slows_only=not index.essential)


def _trigger_problems(observed: ObservedTable, expected: Expected) -> Iterator[Problem]:
    table = expected.table
    for trigger in expected.triggers:
        name = table.derived(trigger.suffix)
        current = [live for live in observed.triggers if _runs(live, trigger, expected.function_source)]
        if any(live.enabled for live in current):
            continue
        if current:
            quoted = quote_identifier(current[0].name)
            text = f"trigger {quoted} is disabled; run ALTER TABLE {table.sql} ENABLE TRIGGER {quoted}"
            yield _problem(table, "disabled_trigger", current[0].name, text)
        elif any(live.enabled and _runs(live, trigger, expected.former_source) for live in observed.triggers):
            text = (
                f"trigger {quote_identifier(name)} notifies at every commit, as it is of the version before; "
                f"when the relays are upgraded, {_UPGRADE}"
            )
            yield _problem(table, "older_trigger", name, text)
        elif any(live.name == name for live in observed.triggers):
            text = (
                f"trigger {quote_identifier(name)} is of another version or for another channel; {_UPGRADE}"
            )
            yield _problem(table, "outdated_trigger", name, text)
        else:
            text = f"trigger {quote_identifier(name)} is missing; {_UPGRADE}"
            yield _problem(table, "missing_trigger", name, text)


def _unwanted_trigger_problems(observed: ObservedTable, expected: Expected) -> Iterator[Problem]:
    if expected.triggers:
        return
    table = expected.table
    for live in observed.triggers:
        if live.enabled and live.function == table.derived(FUNCTION_SUFFIX):
            text = (
                f"trigger {quote_identifier(live.name)} notifies, and must not; {_UPGRADE} with notify=False"
            )
            yield _problem(table, "unwanted_trigger", live.name, text)


def _storage_problems(observed: ObservedTable, table: TableName) -> Iterator[Problem]:
    if observed.kind == "p":
        return  # Postgres has them for partitions only, and these come and go
    for parameter in STORAGE:
        if parameter.name not in observed.storage:
            text = f"storage parameter {parameter.name} is not set, so that vacuum comes late; {_UPGRADE}"
            yield _problem(table, "missing_storage_parameter", parameter.name, text)


def _runs(live: ObservedTrigger, trigger: Trigger, source: str | None) -> bool:
    return (
        source is not None
        and live.type == trigger.type
        and live.new_rows == trigger.new_rows
        and live.source.strip() == source.strip()
    )


def _problem(
    table: TableName, kind: ProblemKind, name: str, text: str, *, slows_only: bool = False
) -> Problem:
    return Problem(kind, name, f"table {table.sql}: {text}", slows_only)
