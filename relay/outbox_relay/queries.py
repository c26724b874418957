"""The relay's SQL, by name, for one table. The texts and their reasons are in `queries.sql`."""

import re
from collections.abc import Sequence
from importlib import resources

from outbox.table import TableName

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^ *--.*\n", re.MULTILINE)

# What the wire needs, computed where the clock is. Moments are compared as seconds: a row with an infinite
# one, or with an expiration that ends beyond the last date there is, must not fail the claim of all others.
# A large body does not come along: a batch of them would not fit into memory.
_COLUMNS = """message.id, message.message_id::text, message.routing_key, message.content_type,
        CASE WHEN octet_length(message.body) <= 16384 THEN message.body END AS body,
        octet_length(message.body) AS size,
        message.headers::text, message.tracking_ids::text, message.ordering_key, message.attempts,
        CASE WHEN isfinite(message.created_at) THEN extract(epoch FROM message.created_at)::bigint END
            AS timestamp,
        (extract(epoch FROM clock_timestamp()) - extract(epoch FROM message.created_at))::float8 AS age,
        (extract(epoch FROM message.send_after) + extract(epoch FROM message.expiration)
            - extract(epoch FROM clock_timestamp()))::float8 AS remaining,
        date_part('epoch', clock_timestamp()) AS clock"""


class Queries:
    """Every query of the relay, spelled for one table."""

    def __init__(self, table: TableName) -> None:
        texts = {
            name: sql.replace("{columns}", _COLUMNS).replace("{table}", table.sql)
            for name, sql in _named(resources.files("outbox_relay").joinpath("queries.sql").read_text())
        }
        self.claim_first = texts["claim"].replace("{beyond}", ">=")
        self.claim_after = texts["claim"].replace("{beyond}", ">")
        self.look = texts["look"]
        self.bodies = texts["bodies"]
        self.delete = texts["delete"]
        self.mark_sent = texts["mark_sent"]
        self.back_off = texts["back_off"]
        self.park = texts["park"]
        self.purge_sent = texts["purge_sent"]
        self.purge_parked = texts["purge_parked"]

    def conclusion(self, gone: Sequence[int], marked: Sequence[int]) -> str:
        """The end of a batch as one script, which takes one round trip: delete, mark as sent, commit.

        The ids are written into it, since a script takes no arguments.
        """
        ended = ((self.delete, gone), (self.mark_sent, marked))
        return "; ".join([*(_with_ids(sql, ids) for sql, ids in ended if ids), "COMMIT"])


def _with_ids(sql: str, ids: Sequence[int]) -> str:
    return _COMMENT.sub("", sql).strip().replace("$1", "'{" + ",".join(map(str, ids)) + "}'")


def _named(script: str) -> list[tuple[str, str]]:
    _, *parts = _NAME.split(script)
    return list(zip(parts[::2], parts[1::2], strict=True))
