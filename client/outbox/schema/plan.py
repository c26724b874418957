"""What an upgrade of a live table consists of, step by step, to be run outside of a transaction.

`upgrade_sql` does everything in one transaction. Each step here is a transaction of its own, so that indexes
are built while others write, and a person learns beforehand what each step locks.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from outbox.schema.indexes import index_sql
from outbox.schema.inspection import Expected, problems
from outbox.schema.observation import ObservedIndex, ObservedTable
from outbox.schema.problem import Problem
from outbox.schema.upgrading import (
    LEGACY_CLEANUP,
    LEGACY_PENDING,
    LEGACY_TRIGGER,
    upgrade_columns_sql,
    upgrade_sql,
    upgrade_storage_sql,
)
from outbox.table import TableName

EXCLUSIVE = "ACCESS EXCLUSIVE: reads and writes wait"
WRITERS_WAIT = "SHARE ROW EXCLUSIVE: emits wait"
CONCURRENT = "SHARE UPDATE EXCLUSIVE: emits and the relay go on"
UNLOCKED = "no lock on the table"

_COLUMN_KINDS = (
    "missing_column",
    "wrong_type",
    "missing_not_null",
    "unwanted_not_null",
    "missing_default",
)
_TRIGGER_KINDS = ("missing_trigger", "outdated_trigger", "older_trigger", "unwanted_trigger")


@dataclass(frozen=True, slots=True)
class UpgradeStep:
    """One statement of an upgrade."""

    change: str
    """What it does, for a person."""
    lock: str
    """What it locks and what that means, for a person."""
    sql: str
    """The statement, to be run outside of a transaction."""


def upgrade_plan(observed: ObservedTable, expected: Expected, channel: str) -> list[UpgradeStep]:
    """The steps that the table needs, in order; none if it is up to date."""
    found = problems(observed, expected)
    return [
        *_column_steps(observed, expected.table, found),
        *_index_steps(observed, expected),
        *_storage_steps(expected.table, found),
        *_last_steps(observed, expected, found, channel),
    ]


def _column_steps(observed: ObservedTable, table: TableName, found: list[Problem]) -> Iterator[UpgradeStep]:
    changes: dict[str, list[str]] = {}
    for problem in found:
        # Of another type than id's a person has to decide what becomes of the values.
        if problem.kind in _COLUMN_KINDS and (problem.kind != "wrong_type" or problem.object == "id"):
            changes.setdefault(problem.kind.replace("_", " "), []).append(problem.object)
    if any(column.name == "id" and column.serial for column in observed.columns):
        changes["serial instead of identity"] = ["id"]
    if not changes:
        return
    text = "; ".join(f"{kind} {', '.join(names)}" for kind, names in changes.items())
    rewrites = "wrong type" in changes or "message_id" in changes.get("missing column", ())
    suffix = " (rewrites the table)" if rewrites else ""
    yield UpgradeStep(f"columns: {text}{suffix}", EXCLUSIVE, upgrade_columns_sql(table))


def _index_steps(observed: ObservedTable, expected: Expected) -> Iterator[UpgradeStep]:
    if observed.kind == "p":
        return  # Postgres builds no index of a partitioned table concurrently: the last step builds it
    table = expected.table
    ours = [table.derived(index.suffix) for index in expected.indexes]
    shapes = [index.shape for index in expected.indexes]
    usable = {live.shape for live in observed.indexes if live.usable}
    stale = {
        live.name: live
        for live in observed.indexes
        if live.name in (*ours, LEGACY_PENDING, LEGACY_CLEANUP) and not (live.usable and live.shape in shapes)
    }
    for index in expected.indexes:
        if index.shape in usable:
            continue
        name = table.derived(index.suffix)
        if name in stale:
            yield _dropped(stale.pop(name))
        sql = index_sql(table, index, concurrently=True)
        yield UpgradeStep(f"index {name}: build it", CONCURRENT, sql)
    yield from map(_dropped, stale.values())


def _dropped(index: ObservedIndex) -> UpgradeStep:
    change = f"index {index.name}: drop it, as it is outdated or was not built to its end"
    return UpgradeStep(change, CONCURRENT, f"DROP INDEX CONCURRENTLY {index.sql}")


def _storage_steps(table: TableName, found: list[Problem]) -> Iterator[UpgradeStep]:
    missing = [problem.object for problem in found if problem.kind == "missing_storage_parameter"]
    if missing:
        change = f"storage parameters: set {', '.join(missing)}"
        yield UpgradeStep(change, CONCURRENT, upgrade_storage_sql(table))


def _last_steps(
    observed: ObservedTable, expected: Expected, found: list[Problem], channel: str
) -> Iterator[UpgradeStep]:
    changes = [
        f"{problem.kind.replace('_', ' ')} {problem.object}"
        for problem in found
        if _is_last(observed, problem)
    ]
    leftovers = [live.name for live in observed.triggers if live.name == LEGACY_TRIGGER]
    leftovers += [live.name for live in observed.indexes if live.name == LEGACY_CLEANUP and live.usable]
    changes += [f"{name} of the original library" for name in leftovers]
    if changes:
        lock = EXCLUSIVE if leftovers else _trigger_lock(observed, expected, found)
        yield UpgradeStep(
            "; ".join(changes), lock, upgrade_sql(expected.table, channel, notify=bool(expected.triggers))
        )


def _is_last(observed: ObservedTable, problem: Problem) -> bool:
    kinds = (*_TRIGGER_KINDS, "missing_index") if observed.kind == "p" else _TRIGGER_KINDS
    return problem.kind in kinds


def _trigger_lock(observed: ObservedTable, expected: Expected, found: list[Problem]) -> str:
    if any(problem.kind == "unwanted_trigger" for problem in found):
        return EXCLUSIVE
    by_name = {live.name: live for live in observed.triggers}
    for trigger in expected.triggers:
        live = by_name.get(expected.table.derived(trigger.suffix))
        if live is not None and (live.type, live.new_rows) != (trigger.type, trigger.new_rows):
            return EXCLUSIVE  # it is dropped and made again; one with an older function gets that renewed
    missing = any(problem.kind in ("missing_trigger", "missing_index") for problem in found)
    return WRITERS_WAIT if missing else UNLOCKED
