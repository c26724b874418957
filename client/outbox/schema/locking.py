"""How a table is locked while it is created, upgraded and dropped: as little and as briefly as possible.

One advisory lock keeps schema changes of the same table apart. The table itself is locked only if there is
something to do, in the mode that this takes, and never waited for longer than a lock timeout, or than
autovacuum needs to give way: everybody who wants to emit queues behind a lock that is waited for.
"""

# ruff: noqa: S608 -- what is put into the SQL is a constant of ours, or quoted by outbox.table

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, TypeAlias, get_args

from outbox.table import TableName, quote_literal

LOCK_TIMEOUT = timedelta(seconds=1)
"""How long one attempt to lock the table may hold emitters up, unless the session has its own timeout."""
LOCK_ATTEMPTS = 30
"""How often the lock is tried; with the pauses in between that is one to two minutes."""

_DETECTION_MILLISECONDS = 200
"""How much longer than `deadlock_timeout` a lock is waited for that a vacuum may have."""

TableLock: TypeAlias = Literal["ACCESS EXCLUSIVE", "SHARE ROW EXCLUSIVE", "SHARE UPDATE EXCLUSIVE"]
"""What a step locks: the first keeps everybody out, the second lets readers in, the third writers too."""


@dataclass(frozen=True, slots=True)
class Step:
    """One change of a table."""

    needed: str
    """The SQL condition, on the catalog and the variable `this_table`, on which it is to be done."""
    body: str
    """The PL/pgSQL that does it."""
    lock: TableLock | None = "ACCESS EXCLUSIVE"
    """The lock that it takes on the table."""


STEP_VARIABLES = """
    this_table oid;
    item record;
    lock_mode text;
    own_timeout text;"""
"""The declarations that the PL/pgSQL of `steps_sql` needs."""


def advisory_key(table_name: str | TableName) -> int:
    """The key of the table's lock, the same in every process and version: 64 bits, signed."""
    # Imported here because an application that only emits never needs it, and hashlib loads OpenSSL.
    import hashlib

    digest = hashlib.sha256(b"outbox " + TableName.parse(table_name).sql.encode()).digest()
    return int.from_bytes(digest[:8], signed=True)


def lock_sql(table: TableName) -> str:
    """PL/pgSQL that waits for every other session that is changing this table's schema."""
    return f"""
    -- Sessions that create the same object at once collide in the catalog, with IF NOT EXISTS or without.
    PERFORM pg_catalog.pg_advisory_xact_lock({advisory_key(table)});
"""


def steps_sql(
    table: TableName,
    steps: Sequence[Step],
    lock_timeout: timedelta = LOCK_TIMEOUT,
    lock_attempts: int = LOCK_ATTEMPTS,
) -> str:
    """PL/pgSQL that locks the table once, in the strongest mode that is needed, and does what is needed."""
    if lock_attempts < 1 or lock_timeout < timedelta(milliseconds=1):
        raise ValueError("lock_attempts and lock_timeout must be at least 1 and 1 ms")
    decisions = "".join(
        f"""
        WHEN {_any_of([step.needed for step in steps if step.lock == mode])}
        THEN '{mode}'"""
        for mode in get_args(TableLock)
        if any(step.lock == mode for step in steps)
    )
    return f"""
    lock_mode := CASE{decisions}
    END;
    IF lock_mode IS NOT NULL THEN
{acquire_sql(table, lock_timeout, lock_attempts)}    END IF;
""" + "".join(
        f"""
    IF {step.needed} THEN
{step.body}    END IF;
"""
        for step in steps
    )


def acquire_sql(
    table: TableName, lock_timeout: timedelta = LOCK_TIMEOUT, lock_attempts: int = LOCK_ATTEMPTS
) -> str:
    """PL/pgSQL that locks `this_table` in the mode `lock_mode`, and lets emitters through while it waits."""
    milliseconds = round(lock_timeout.total_seconds() * 1000)
    in_use = f"table {table.sql} is in use by other transactions: could not lock it in "
    return f"""        own_timeout := pg_catalog.current_setting('lock_timeout');
        FOR attempt IN 1..{lock_attempts} LOOP
            BEGIN
                IF own_timeout = '0' THEN
                    PERFORM pg_catalog.set_config('lock_timeout', {_timeout_sql(milliseconds)}, true);
                END IF;
                EXECUTE {quote_literal(f"LOCK TABLE {table.sql} IN ")} || lock_mode || ' MODE';
                EXIT;
            EXCEPTION WHEN lock_not_available THEN
                IF attempt = {lock_attempts} THEN
                    RAISE EXCEPTION USING
                        ERRCODE = 'lock_not_available',
                        MESSAGE = {quote_literal(in_use)} || lock_mode
                            || ' mode, attempts: ' || attempt::text,
                        HINT = 'Wait for these processes of pg_stat_activity or end them, and run it again: '
                            || coalesce((
                                SELECT pg_catalog.string_agg(DISTINCT pid::text, ', ')
                                FROM pg_catalog.pg_locks
                                WHERE relation = this_table AND granted AND pid <> pg_catalog.pg_backend_pid()
                            ), 'none is left');
                END IF;
                -- Emitters that have queued behind this attempt get through now.
                PERFORM pg_catalog.pg_sleep(
                    least(0.1::float8 * pg_catalog.power(2::float8, attempt::float8), 3::float8)
                    * (0.5::float8 + pg_catalog.random() / 2::float8)
                );
            END;
        END LOOP;
        PERFORM pg_catalog.set_config('lock_timeout', own_timeout, true);
"""


def _timeout_sql(milliseconds: int) -> str:
    # Autovacuum gives way to whoever has waited for as long as `deadlock_timeout`, and to nobody before.
    return f"""(
                        SELECT CASE WHEN EXISTS (
                            SELECT FROM pg_catalog.pg_locks
                            WHERE relation = this_table AND mode = 'ShareUpdateExclusiveLock'
                                AND granted AND pid <> pg_catalog.pg_backend_pid()
                        ) THEN greatest({milliseconds}, setting::integer + {_DETECTION_MILLISECONDS})
                        ELSE {milliseconds} END::text || 'ms'
                        FROM pg_catalog.pg_settings WHERE name = 'deadlock_timeout'
                    )"""


def _any_of(conditions: list[str]) -> str:
    return "\n            OR ".join(f"({condition})" for condition in conditions)
