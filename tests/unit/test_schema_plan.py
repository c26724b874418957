"""The steps of an upgrade: what differs, in which order it is changed, and what each step locks."""

import dataclasses
from typing import Any

import pytest

from outbox.schema.inspection import Expected
from outbox.schema.observation import ObservedColumn, ObservedIndex, ObservedTable, ObservedTrigger
from outbox.schema.plan import CONCURRENT, EXCLUSIVE, UNLOCKED, WRITERS_WAIT, upgrade_plan
from outbox.schema.trigger import DEFAULT_CHANNEL, TRIGGERS, function_source
from outbox.table import COLUMNS, INDEXES, STORAGE, TableName

TABLE = TableName.parse("outbox_table")
SOURCE = function_source(DEFAULT_CHANNEL)
KEY = ObservedIndex("outbox_table_pkey", "UNIQUE btree (id)", usable=True)
CURRENT = ObservedTable(
    tuple(
        ObservedColumn(
            column.name, column.type, column.nullable, filled=column.identity or column.default is not None
        )
        for column in COLUMNS
    ),
    (
        KEY,
        *(
            ObservedIndex(name := TABLE.derived(index.suffix), index.shape, True, f"public.{name}")
            for index in INDEXES
        ),
    ),
    tuple(
        ObservedTrigger(TABLE.derived(trigger.suffix), trigger.type, trigger.new_rows, SOURCE, True)
        for trigger in TRIGGERS
    ),
    storage=tuple(parameter.name for parameter in STORAGE),
)  # fmt: skip


def steps(observed: ObservedTable) -> list[tuple[str, str]]:
    plan = upgrade_plan(observed, Expected.of(TABLE, DEFAULT_CHANNEL), DEFAULT_CHANNEL)
    return [(step.change, step.lock) for step in plan]


def without(things: tuple[Any, ...], *names: str) -> tuple[Any, ...]:
    return tuple(thing for thing in things if thing.name not in names)


def changed(things: tuple[Any, ...], which: str, /, **values: Any) -> tuple[Any, ...]:
    return tuple(dataclasses.replace(one, **values) if one.name == which else one for one in things)


def test_a_current_table_needs_no_step() -> None:
    assert steps(CURRENT) == []


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (without(CURRENT.columns, "last_error"), "columns: missing column last_error"),
        (
            without(CURRENT.columns, "message_id"),
            "columns: missing column message_id (rewrites the table)",
        ),
        (changed(CURRENT.columns, "id", type="integer"), "columns: wrong type id (rewrites the table)"),
        (changed(CURRENT.columns, "id", serial=True), "columns: serial instead of identity id"),
        (changed(CURRENT.columns, "attempts", filled=False), "columns: missing default attempts"),
    ],
)
def test_columns_are_changed_in_one_exclusive_step(columns: Any, expected: str) -> None:
    assert steps(dataclasses.replace(CURRENT, columns=columns)) == [(expected, EXCLUSIVE)]


def test_a_type_that_a_person_has_to_change_is_no_step() -> None:
    assert steps(dataclasses.replace(CURRENT, columns=changed(CURRENT.columns, "body", type="text"))) == []


BUILD = ("index outbox_table_sent_idx: build it", CONCURRENT)
DROP = (
    "index outbox_table_sent_idx: drop it, as it is outdated or was not built to its end",
    CONCURRENT,
)


@pytest.mark.parametrize(
    ("indexes", "expected"),
    [
        (without(CURRENT.indexes, "outbox_table_sent_idx"), [BUILD]),
        (changed(CURRENT.indexes, "outbox_table_sent_idx", shape="btree (id)"), [DROP, BUILD]),
        (changed(CURRENT.indexes, "outbox_table_sent_idx", usable=False), [DROP, BUILD]),
        (changed(CURRENT.indexes, "outbox_table_sent_idx", name="mine"), []),
    ],
)
def test_indexes_are_built_while_others_write(indexes: Any, expected: list[tuple[str, str]]) -> None:
    assert steps(dataclasses.replace(CURRENT, indexes=indexes)) == expected


def test_the_statements_of_indexes_are_concurrent() -> None:
    observed = dataclasses.replace(
        CURRENT, indexes=changed(CURRENT.indexes, "outbox_table_sent_idx", usable=False)
    )
    plan = upgrade_plan(observed, Expected.of(TABLE, DEFAULT_CHANNEL), DEFAULT_CHANNEL)
    assert plan[0].sql == "DROP INDEX CONCURRENTLY public.outbox_table_sent_idx"
    assert plan[1].sql.startswith(
        'CREATE INDEX CONCURRENTLY "outbox_table_sent_idx" ON "outbox_table" (sent_at)'
    )


def test_indexes_of_a_partitioned_table_are_built_under_a_lock() -> None:
    observed = dataclasses.replace(
        CURRENT, indexes=without(CURRENT.indexes, "outbox_table_sent_idx"), kind="p"
    )
    assert steps(observed) == [("missing index outbox_table_sent_idx", WRITERS_WAIT)]


@pytest.mark.parametrize(
    ("triggers", "expected"),
    [
        (
            without(CURRENT.triggers, "outbox_table_notify"),
            ("missing trigger outbox_table_notify", WRITERS_WAIT),
        ),
        (
            changed(CURRENT.triggers, "outbox_table_notify", type=5),
            ("outdated trigger outbox_table_notify", EXCLUSIVE),
        ),
        (
            changed(CURRENT.triggers, "outbox_table_notify", source="older"),
            ("outdated trigger outbox_table_notify", UNLOCKED),
        ),
        (
            (*CURRENT.triggers, ObservedTrigger("outbox_notify_trigger", 5, None, "", True)),
            ("outbox_notify_trigger of the original library", EXCLUSIVE),
        ),
    ],
)
def test_triggers_come_last(triggers: Any, expected: tuple[str, str]) -> None:
    assert steps(dataclasses.replace(CURRENT, triggers=triggers)) == [expected]


def test_triggers_that_are_not_wanted_are_dropped() -> None:
    ours = tuple(dataclasses.replace(live, function="outbox_table_notify") for live in CURRENT.triggers)
    expected = Expected.of(TABLE, DEFAULT_CHANNEL, notify=False)
    [step] = upgrade_plan(dataclasses.replace(CURRENT, triggers=ours), expected, DEFAULT_CHANNEL)
    assert (step.lock, "DROP TRIGGER" in step.sql) == (EXCLUSIVE, True)


def test_storage_parameters_are_set_while_others_write() -> None:
    observed = dataclasses.replace(CURRENT, storage=("fillfactor",))
    assert steps(observed) == [("storage parameters: set autovacuum_vacuum_scale_factor", CONCURRENT)]
    assert steps(dataclasses.replace(observed, kind="p")) == []
