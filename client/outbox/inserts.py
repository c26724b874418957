"""The statements that put messages into one outbox table and take timers out of it again."""

# ruff: noqa: S608 -- what is put into the SQL is a constant of ours, or quoted by outbox.table

from collections.abc import Sequence
from dataclasses import dataclass

from outbox.drivers import Statement
from outbox.message import PLAIN_FIELDS, MessageRow
from outbox.table import PENDING, TableName, quote_literal

# Every parameter has its type written down, so that it means the same through every driver, also one whose
# json or jsonb codec the application has replaced.
_TYPES = {
    "message_id": "uuid",
    "routing_key": "text",
    "body": "bytea",
    "content_type": "text",
    "headers": "text",
    "tracking_ids": "text",
    "ordering_key": "text",
    "timer_id": "text",
    "expiration": "float8",
    "due_at": "float8",
    "due_in": "float8",
}

# What each column becomes from the fields of a `MessageRow`.
_COLUMNS = {
    "message_id": "{message_id}",
    "routing_key": "{routing_key}",
    "body": "{body}",
    "content_type": "{content_type}",
    "headers": "{headers}::jsonb",
    "tracking_ids": "{tracking_ids}::json",
    "ordering_key": "{ordering_key}",
    "timer_id": "{timer_id}",
    "expiration": "{expiration} * interval '1 second'",
    "send_after": (
        "coalesce(pg_catalog.to_timestamp({due_at}), "
        "pg_catalog.clock_timestamp() + {due_in} * interval '1 second', pg_catalog.now())"
    ),
}
_PLAIN_COLUMNS = {column: _COLUMNS[column] for column in PLAIN_FIELDS}

_PENDING_TIMER = f"(routing_key, timer_id) WHERE timer_id IS NOT NULL AND {PENDING}"

# DO NOTHING would not wait for a relay that is sending this very timer: a listener that sets its own timer
# again would be told that one is pending, and then have none. DO UPDATE waits until the row is free, and
# inserts when it is gone by then.
_KEEP_PENDING = f"ON CONFLICT {_PENDING_TIMER} DO UPDATE SET timer_id = EXCLUDED.timer_id WHERE false"

# The replacement is a new message: it gets an id of its own, drawn after the wait for a relay that holds the
# old row, so that it is the last one of its ordering key.
_REPLACED_COLUMNS = (
    "message_id", "body", "content_type", "headers", "tracking_ids", "ordering_key", "expiration",
    "send_after", "created_at", "attempts", "last_error",
)  # fmt: skip
_REPLACE_PENDING = f"ON CONFLICT {_PENDING_TIMER} DO UPDATE SET id = DEFAULT, " + ", ".join(
    f"{column} = EXCLUDED.{column}" for column in _REPLACED_COLUMNS
)

# RETURNING and not the count of rows, which a psycopg pipeline knows only after a sync; a fetch waits for it.
# A constant takes no SELECT privilege.
_RETURNING = "RETURNING true"

_CANCELLATION = (
    f"DELETE FROM {{table}} WHERE routing_key::text = $1::text AND timer_id::text = $2::text AND {PENDING} "
    f"{_RETURNING}"
)

# Sorted, so that two sessions cannot each hold a lock that the other waits for. The seed is the table's oid:
# the same key of another table has another lock.
_KEY_LOCK = """
SELECT pg_catalog.pg_advisory_xact_lock(sorted.lock) FROM (
    SELECT DISTINCT pg_catalog.hashtextextended(given.ordering_key, {table}::regclass::oid::bigint) AS lock
    FROM pg_catalog.unnest($1::text[]) AS given (ordering_key)
    ORDER BY lock
) AS sorted
"""


@dataclass(frozen=True, slots=True)
class Inserts:
    """The statements for one table; those that insert take the fields of a `MessageRow`."""

    one: Statement
    """Insert a message."""
    timer: Statement
    """Insert a message with a `timer_id` unless one is pending; returns a row if it was inserted."""
    replacement: Statement
    """Insert a message with a `timer_id` instead of the pending one; returns a row."""
    many_plain: Statement
    """Insert any number of messages of which none has more than its `PLAIN_FIELDS`, each an array."""
    many: Statement
    """Insert any number of messages, each field an array."""
    many_timers: Statement
    """The same where some have a `timer_id`; returns the ids of those inserted."""
    cancellation: Statement
    """Delete a pending timer, after waiting for a relay that is sending it; returns a row if it did."""
    key_lock: Statement
    """Lock ordering keys, an array, until the transaction ends."""

    @classmethod
    def into(cls, table: TableName) -> "Inserts":
        one = f"INSERT INTO {{table}} ({', '.join(_COLUMNS)}) VALUES ({_values()})"
        many = _from_arrays(_COLUMNS, MessageRow._fields)
        return cls(
            one=Statement.of("one", one, table.sql),
            timer=Statement.of("timer", f"{one} {_KEEP_PENDING} {_RETURNING}", table.sql),
            replacement=Statement.of("replacement", f"{one} {_REPLACE_PENDING} {_RETURNING}", table.sql),
            many_plain=Statement.of("many_plain", _from_arrays(_PLAIN_COLUMNS, PLAIN_FIELDS), table.sql),
            many=Statement.of("many", many, table.sql),
            many_timers=Statement.of(
                "many_timers", f"{many} {_KEEP_PENDING} RETURNING message_id::text", table.sql
            ),
            cancellation=Statement.of("cancellation", _CANCELLATION, table.sql),
            key_lock=Statement.of("key_lock", _KEY_LOCK, quote_literal(table.sql)),
        )


def _values() -> str:
    parameters = {
        field: f"${number}::{_TYPES[field]}" for number, field in enumerate(MessageRow._fields, start=1)
    }
    return ", ".join(_COLUMNS.values()).format(**parameters)


def _from_arrays(columns: dict[str, str], fields: Sequence[str]) -> str:
    arrays = ", ".join(f"${number}::{_TYPES[field]}[]" for number, field in enumerate(fields, start=1))
    values = ", ".join(columns.values()).format(**{field: f"given.{field}" for field in fields})
    return (
        f"INSERT INTO {{table}} ({', '.join(columns)}) SELECT {values} "
        f"FROM unnest({arrays}) AS given ({', '.join(fields)})"
    )
