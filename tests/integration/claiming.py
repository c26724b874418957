"""Claims as a relay makes them, without one, and what they cost."""

import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any

import asyncpg

from outbox.table import TableName, quote_literal
from outbox_relay.claims import Claims
from outbox_relay.queries import Queries

QUERIES = Queries(TableName.parse("outbox_table"))
_numbers = itertools.count()
_BY_INDEX = ("Index Scan", "Index Only Scan", "Bitmap Heap Scan")


async def fill(database: asyncpg.Connection, rows: int, key: str | None = None, *, keys: int = 1) -> None:
    """So many due rows, in one of the table's pages after the other; of several keys if wanted.

    They are due for a minute: what became due in the last seconds is read again.
    """
    await database.execute(
        "INSERT INTO outbox_table (send_after, routing_key, body, ordering_key) "
        "SELECT now() - interval '1 minute', 'a', convert_to(repeat('x', 100), 'UTF8'), "
        "CASE WHEN $3::integer > 1 THEN $2::text || number % $3 ELSE $2 END "
        "FROM generate_series(1, $1::integer) AS number",
        rows,
        key,
        keys,
    )


class Plan:
    """The plan of one claim, as it was executed."""

    def __init__(self, explained: str) -> None:
        self.root = json.loads(explained)[0]["Plan"]

    @property
    def nodes(self) -> list[dict[str, Any]]:
        return list(_walk(self.root))

    @property
    def rows(self) -> int:
        """Without the report."""
        return int(self.root["Actual Rows"]) - 1

    @property
    def buffers(self) -> int:
        return int(self.root["Shared Hit Blocks"] + self.root["Shared Read Blocks"])

    def part(self, name: str) -> list[dict[str, Any]]:
        """The nodes of one of the query's CTEs."""
        [root] = [node for node in self.nodes if node.get("Subplan Name") == f"CTE {name}"]
        return list(_walk(root))


def _walk(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from _walk(child)


async def claimed(
    database: asyncpg.Connection, batch: int, mode: str = "force_custom_plan", claims: Claims | None = None
) -> Plan:
    """Claim once as a prepared statement does, and return its plan; what was claimed is rolled back."""
    claims = claims or Claims()
    claim = claims.begin(batch)
    transaction = database.transaction()
    await transaction.start()
    try:
        await database.execute(f"SET LOCAL plan_cache_mode = {mode}")
        return Plan(await explained(database, QUERIES.claim, claim.arguments))
    finally:
        await transaction.rollback()
        claims.ended(claim)


async def explained(database: asyncpg.Connection, query: str, arguments: Sequence[Any]) -> str:
    """How a query was executed, which is prepared anew."""
    name = f"explained_{next(_numbers)}"
    await database.execute(f"PREPARE {name} AS {query}")
    text = await explain_prepared(database, name, arguments)
    await database.execute(f"DEALLOCATE {name}")
    return text


async def explain_prepared(database: asyncpg.Connection, name: str, arguments: Sequence[Any]) -> str:
    """How a prepared statement was executed."""
    literals = ", ".join(map(_literal, arguments))
    explain = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON)"
    text: str = await database.fetchval(f"{explain} EXECUTE {name} ({literals})")
    return text


def _literal(value: object) -> str:
    if isinstance(value, list):
        return quote_literal("{" + ",".join(map(str, value)) + "}")
    return "NULL" if value is None else quote_literal(value) if isinstance(value, str) else str(value)


async def claims_until(database: asyncpg.Connection, claims: Claims, key: str) -> int:
    """Claim until a row of the key is claimed; returns how many claims that took."""
    for number in range(1, 1_000):
        if key in await keys_of_claim(database, claims):
            return number
    raise AssertionError(f"nothing of {key} was claimed")


async def keys_of_claim(database: asyncpg.Connection, claims: Claims, batch: int = 500) -> list[str]:
    """The keys of one claim, which is rolled back."""
    claim = claims.begin(batch)
    transaction = database.transaction()
    await transaction.start()
    *rows, report = await database.fetch(QUERIES.claim, *claim.arguments)
    keyed = [(row["ordering_key"], row["id"]) for row in rows if row["ordering_key"] is not None]
    claims.found(claim, report["report"], keyed)
    await transaction.rollback()
    claims.ended(claim)
    return [key for key, _ in keyed]


def assert_walks_the_pending_index(plan: Plan, batch: int) -> None:
    """In the index's own order, and no further than the batch."""
    limit, lock, scan = plan.part("keyless")
    assert [limit["Node Type"], lock["Node Type"]] == ["Limit", "LockRows"]
    assert (scan["Node Type"], scan["Index Name"]) == ("Index Scan", "outbox_table_pending_idx")
    assert (scan["Scan Direction"], scan["Actual Rows"]) == ("Forward", batch)
    for node in plan.nodes:
        # What was read is sorted by key or position; the table is read by indexes alone.
        on_table = node.get("Relation Name") == "outbox_table"
        assert not on_table or node["Node Type"] in _BY_INDEX, node
    for name in ("keyless", "late", "discovered", "keyed"):
        kinds = {node["Node Type"] for node in plan.part(name)}
        assert not kinds & {"Sort", "Incremental Sort", "Hash Join"}, (name, kinds)
