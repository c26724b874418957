"""The relay's SQL, by name, for one table. The texts and their reasons are in `queries.sql`."""

import re
from collections.abc import Iterator, Sequence
from importlib import resources
from typing import TypeAlias

from outbox.table import TableName

Key: TypeAlias = tuple[int, int]
"""What identifies a row: the oid of its partition, or of the table if it has none, and its id."""

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^ *--.*\n", re.MULTILINE)

# What the wire needs, computed where the clock is. Moments are compared as seconds: a row with an infinite
# one, or with an expiration that ends beyond the last date there is, must not fail the claim of all others.
# A large body does not come along: a batch of them would not fit into memory.
_COLUMNS = """message.tableoid AS partition, message.id, message.message_id::text, message.routing_key,
        message.content_type,
        CASE WHEN octet_length(message.body) <= 16384 THEN message.body END AS body,
        octet_length(message.body) AS size,
        message.headers::text, message.tracking_ids::text, message.ordering_key, message.attempts,
        CASE WHEN isfinite(message.created_at) THEN extract(epoch FROM message.created_at)::bigint END
            AS timestamp,
        (extract(epoch FROM clock_timestamp()) - extract(epoch FROM message.created_at))::float8 AS age,
        (extract(epoch FROM message.send_after) + extract(epoch FROM message.expiration)
            - extract(epoch FROM clock_timestamp()))::float8 AS remaining,
        date_part('epoch', clock_timestamp()) AS clock"""

# What is left of an expiration counts from the new time on, so that the moment at which it ends stays the
# same, unless that is beyond the last date there is.
_DUE_LATER = """send_after = clock_timestamp() + given.delay * interval '1 second',
    expiration = CASE
        WHEN NOT isfinite(send_after) OR expiration > interval '1000 years' THEN expiration
        ELSE send_after + expiration - (clock_timestamp() + given.delay * interval '1 second')
    END"""


# A float has the microseconds of a moment nearly, but not quite.
_FLOOR = "to_timestamp($3::float8) - interval '1 millisecond'"


class Queries:
    """Every query of the relay, spelled for one table."""

    def __init__(self, table: TableName) -> None:
        script = resources.files("outbox_relay").joinpath("queries.sql").read_text()
        for name, sql in (
            ("{columns}", _COLUMNS),
            ("{due_later}", _DUE_LATER),
            ("{floor}", _FLOOR),
            ("{table}", table.sql),
        ):
            script = script.replace(name, sql)
        texts = dict(_named(script))
        self.claim_first = texts["claim"].replace("{beyond}", ">=")
        self.claim_after = texts["claim"].replace("{beyond}", ">")
        self.look = texts["look"]
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
