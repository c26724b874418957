"""The relay's SQL, by name, for one table. The texts and their reasons are in `queries.sql`."""

import re
from collections.abc import Iterator, Sequence
from importlib import resources
from typing import TypeAlias

from outbox.table import PENDING, TableName

Key: TypeAlias = tuple[int, int]
"""What identifies a row: the oid of its partition, or of the table if it has none, and its id."""

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^ *--.*\n", re.MULTILINE)

# What the wire needs, computed where the clock is. Moments are compared as seconds: a row with an infinite
# one, or with an expiration that ends beyond the last date there is, must not fail the claim of all others.
# A large body does not come along: a batch of them would not fit into memory.
_COLUMNS = {
    "partition": "message.tableoid",
    "id": "message.id",
    "message_id": "message.message_id::text",
    "routing_key": "message.routing_key",
    "content_type": "message.content_type",
    "body": "CASE WHEN pg_catalog.octet_length(message.body) <= 16384 THEN message.body END",
    "size": "pg_catalog.octet_length(message.body)",
    "headers": "message.headers::text",
    "tracking_ids": "message.tracking_ids::text",
    "ordering_key": "message.ordering_key",
    "attempts": "message.attempts",
    "timestamp": (
        "CASE WHEN pg_catalog.isfinite(message.created_at)"
        " THEN extract(epoch FROM message.created_at)::bigint END"
    ),
    "age": (
        "(extract(epoch FROM pg_catalog.clock_timestamp()) - extract(epoch FROM message.created_at))::float8"
    ),
    "remaining": (
        "(extract(epoch FROM message.send_after) + extract(epoch FROM message.expiration)"
        " - extract(epoch FROM pg_catalog.clock_timestamp()))::float8"
    ),
    "clock": "pg_catalog.date_part('epoch', pg_catalog.clock_timestamp())",
}

# What is left of an expiration counts from the new time on, so that the moment at which it ends stays the
# same, unless that is beyond the last date there is.
_DUE_LATER = """send_after = pg_catalog.clock_timestamp() + given.delay * interval '1 second',
    expiration = CASE
        WHEN NOT pg_catalog.isfinite(send_after) OR expiration > interval '1000 years' THEN expiration
        ELSE send_after + expiration - (pg_catalog.clock_timestamp() + given.delay * interval '1 second')
    END"""


# As index conditions: what is compared with a column has to be an expression without one.
_MACROS = {
    "columns": ",\n        ".join(f"{sql} AS {name}" for name, sql in _COLUMNS.items()),
    "no_columns": ", ".join(["NULL"] * len(_COLUMNS)),
    "due_later": _DUE_LATER,
    # A float has the microseconds of a moment nearly, but not quite.
    "floor": "pg_catalog.to_timestamp($3::float8) - interval '1 millisecond'",
    "pending": PENDING,
    "keyless_due": f"ordering_key IS NULL AND {PENDING} AND send_after <= pg_catalog.statement_timestamp()",
    "keyed_due": f"ordering_key IS NOT NULL AND {PENDING} AND send_after <= pg_catalog.statement_timestamp()",
    "first_id": "(-9223372036854775808)::bigint",
    "moment": (
        "CASE WHEN {}::bigint IS NULL THEN '-infinity'::timestamptz"
        " ELSE 'epoch'::timestamptz + ({}::bigint OPERATOR(pg_catalog.*) '1 microsecond'::interval) END"
    ),
    "micros": (
        "CASE WHEN pg_catalog.isfinite({}) THEN (extract(epoch FROM {}) * 1000000::numeric)::bigint END"
    ),
    # A range and not an equation of keys: with it no other index can look cheaper, whatever the statistics.
    "first_of_key": """SELECT tableoid AS partition, id, send_after, parked_at
        FROM {table} AS queued
        WHERE sent_at IS NULL AND ordering_key::text <= candidate.ordering_key
            AND (ordering_key::text, id) >= (candidate.ordering_key, {})
        ORDER BY ordering_key::text, id
        LIMIT 1""",
}
"""What stands for longer texts in `queries.sql`; `{}` is what follows the colon there."""

_MACRO = re.compile(r"\{(\w+)(?::((?:[^{}]|\{\w+\})*))?\}")


def _expanded(sql: str, table: TableName) -> str:
    def expand(found: re.Match[str]) -> str:
        name, argument = found.groups()
        text = table.sql if name == "table" else _MACROS[name]
        return _expanded(text.replace("{}", argument or ""), table) if name != "table" else text

    return _MACRO.sub(expand, sql)


class Queries:
    """Every query of the relay, spelled for one table."""

    def __init__(self, table: TableName) -> None:
        script = resources.files("outbox_relay").joinpath("queries.sql").read_text()
        texts = {name: _expanded(sql, table) for name, sql in _named(script)}
        self.claim = texts["claim"]
        self.look = texts["look"]
        self.late = texts["late"]
        self.claimable_keys = texts["claimable_keys"]
        self.claimable = texts["claimable"]
        self.writers = texts["writers"]
        self.partitions = texts["partitions"]
        self.bodies = texts["bodies"]
        self.delete = texts["delete"]
        self.mark_sent = texts["mark_sent"]
        self.back_off = texts["back_off"]
        self.reschedule = texts["reschedule"]
        self.delete_late = texts["delete_late"]
        self.mark_late = texts["mark_late"]
        self.park = texts["park"]
        self.purge_sent = texts["purge_sent"]
        self.purge_parked = texts["purge_parked"]

    def conclusion(self, gone: Sequence[Key], marked: Sequence[Key]) -> str:
        """The end of a batch as one script, which takes one round trip: delete, mark as sent, commit.

        The keys are written into it, since a script takes no arguments.
        """
        ended = [*_with_keys(self.delete, gone), *_with_keys(self.mark_sent, marked)]
        return "; ".join([*ended, "COMMIT"])


def _with_keys(sql: str, keys: Sequence[Key]) -> Iterator[str]:
    """The statement, once for each partition, with the keys in place of its arguments."""
    text = _COMMENT.sub("", sql).strip()
    ids: dict[int, list[int]] = {}
    for partition, row_id in keys:
        ids.setdefault(partition, []).append(row_id)
    for partition, found in ids.items():
        yield text.replace("$1", "'{" + ",".join(map(str, found)) + "}'").replace("$2", f"'{partition}'")


def _named(script: str) -> list[tuple[str, str]]:
    _, *parts = _NAME.split(script)
    return list(zip(parts[::2], parts[1::2], strict=True))
