"""Outbox and inbox tables that are partitioned: `ctid` and `id` are unique within a partition only."""

from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from outbox import schema
from outbox.table import COLUMNS, TableName
from outbox_core import backlog
from outbox_relay.claims import Claims
from outbox_relay.queries import Queries
from outbox_relay.retention import Retention
from outbox_worker.inbox import Inbox
from tests.integration.commanding import outbox_beside
from tests.integration.relaying import Traffic, traffic_between

TABLE = TableName.parse("outbox_table")
QUERIES = Queries(TABLE)
HOUR = timedelta(hours=1)

BY_ROUTING_KEY = """
CREATE TABLE outbox_table ({columns}, PRIMARY KEY (id, routing_key)) PARTITION BY LIST (routing_key);
CREATE TABLE first_part PARTITION OF outbox_table FOR VALUES IN ('first');
CREATE TABLE second_part PARTITION OF outbox_table DEFAULT
"""
BY_DAY = """
CREATE TABLE outbox_table ({columns}, PRIMARY KEY (id, created_at)) PARTITION BY RANGE (created_at);
CREATE TABLE first_part PARTITION OF outbox_table FOR VALUES FROM (MINVALUE) TO (now() - interval '1 day');
CREATE TABLE second_part PARTITION OF outbox_table FOR VALUES FROM (now() - interval '1 day') TO (MAXVALUE)
"""
BY_DAY_AND_ROUTING_KEY = """
CREATE TABLE outbox_table ({columns}, PRIMARY KEY (id, created_at, routing_key))
    PARTITION BY RANGE (created_at);
CREATE TABLE first_part PARTITION OF outbox_table FOR VALUES FROM (MINVALUE) TO (now() - interval '1 day')
    PARTITION BY LIST (routing_key);
CREATE TABLE first_of_first PARTITION OF first_part FOR VALUES IN ('first');
CREATE TABLE second_of_first PARTITION OF first_part DEFAULT;
CREATE TABLE second_part PARTITION OF outbox_table FOR VALUES FROM (now() - interval '1 day') TO (MAXVALUE)
    PARTITION BY LIST (routing_key);
CREATE TABLE first_of_second PARTITION OF second_part FOR VALUES IN ('first');
CREATE TABLE second_of_second PARTITION OF second_part DEFAULT
"""
FIRST = {"routing_key": "'first'", "created_at": "now() - interval '2 days'"}
"""Columns of a row in the first partition, whichever way the table is partitioned."""


@pytest.fixture
async def plain(postgres_url: str, rabbitmq_url: str) -> AsyncIterator[Traffic]:
    async with traffic_between(postgres_url, rabbitmq_url) as traffic:
        yield traffic


@pytest.fixture(
    params=[BY_ROUTING_KEY, BY_DAY, BY_DAY_AND_ROUTING_KEY],
    ids=["by routing key", "by day", "by day and routing key"],
)
async def traffic(plain: Traffic, request: pytest.FixtureRequest) -> Traffic:
    """A table whose two partitions have rows with the same ids."""
    columns = ", ".join(column.definition.removesuffix(" PRIMARY KEY") for column in COLUMNS)
    await plain.database.execute("DROP TABLE outbox_table")
    # Bounds of partitions take constants only.
    today = await plain.database.fetchval("SELECT quote_literal(now() - interval '1 day')")
    await plain.database.execute(
        request.param.format(columns=columns).replace("now() - interval '1 day'", today)
    )
    await plain.database.execute(schema.create_sql())
    return plain


async def test_a_partitioned_table_is_completed_upgraded_and_accepted(traffic: Traffic) -> None:
    assert await schema.check(traffic.database) == []
    await traffic.database.execute(schema.create_sql())
    await traffic.database.execute(schema.upgrade_sql())
    assert await schema.check(traffic.database) == []


@pytest.mark.parametrize("state", ["sent_at", "parked_at"])
async def test_retention_deletes_from_one_partition_what_is_old_there(traffic: Traffic, state: str) -> None:
    pending = [
        await traffic.insert(id=f"{row_id}", send_after="now() + interval '1 hour'")
        for row_id in range(1, 21)
    ]
    for row_id in range(1, 6):
        await traffic.insert(**FIRST, id=f"{row_id}", **{state: "now() - interval '2 hours'"})
    assert await Retention(sent=HOUR, parked=HOUR).run_once(traffic.database, QUERIES) == 5
    assert sorted(await traffic.ids()) == sorted(pending)


@pytest.mark.parametrize("kept", ["immediately", "never"])
async def test_a_batch_settles_its_own_rows_and_none_with_the_same_id(traffic: Traffic, kept: str) -> None:
    inbox = await traffic.inbox("a", "first")
    due = [await traffic.insert(id=f"{row_id}") for row_id in range(1, 6)]
    due.append(await traffic.insert(id="6", body="repeat('x', 20000)::bytea"))
    due.append(await traffic.insert(id="7", ordering_key="'k'"))
    await traffic.insert(id="8", headers="'[]'")
    unroutable = await traffic.insert(id="9", routing_key="'nowhere'")
    later = {"send_after": "now() + interval '1 hour'", "body": "repeat('y', 20000)::bytea"}
    waiting = [await traffic.insert(**FIRST, **later, id=f"{row_id}") for row_id in (*range(1, 7), 8, 9)]
    waiting.append(await traffic.insert(**FIRST, **later, id="7", ordering_key="'j'"))
    await traffic.relaying(clean_up_after=kept, backoff_initial=60, backoff_maximum=60)
    await inbox.gets(due)
    await traffic.until_ids([unroutable], "attempts > 0 AND parked_at IS NULL")
    await traffic.until_ids(waiting, "sent_at IS NULL AND parked_at IS NULL AND attempts = 0")
    await traffic.until_ids(due if kept == "never" else [], "sent_at IS NOT NULL")
    assert Counter(inbox.ids) == Counter(due)
    assert (await inbox.get(due[5])).body == b"x" * 20000


async def test_messages_flow_through_a_partition_added_meanwhile(traffic: Traffic) -> None:
    inbox = await traffic.inbox("#")
    await traffic.relaying()
    sent = [await traffic.insert(**FIRST), await traffic.insert()]
    await inbox.gets(sent)
    bounds = await traffic.database.fetchval(
        "SELECT pg_get_expr(relpartbound, oid) FROM pg_class WHERE oid = 'first_part'::regclass"
    )
    await traffic.database.execute("ALTER TABLE outbox_table DETACH PARTITION first_part")
    await traffic.database.execute(f"CREATE TABLE third_part PARTITION OF outbox_table {bounds}")
    sent.append(await traffic.insert(**FIRST))
    await inbox.gets(sent)
    assert Counter(inbox.ids) == Counter(sent)


@pytest.mark.parametrize("verb", ["retry", "purge --yes"])
async def test_the_command_leaves_a_row_with_the_same_id_alone(traffic: Traffic, verb: str) -> None:
    for columns in (FIRST, {}):
        await traffic.insert(**columns, id="1", parked_at="now()")
    told = await outbox_beside(
        "messages", *verb.split(), "--routing-key", "first", OUTBOX_DATABASE_URL=traffic.postgres_url
    )
    assert told.status == 0
    rows = await traffic.database.fetch("SELECT routing_key FROM outbox_table WHERE parked_at IS NOT NULL")
    assert [row["routing_key"] for row in rows] == ["a"]


async def test_queries_on_a_partitioned_table_walk_indexes(traffic: Traffic) -> None:
    second = {"routing_key": "'a'", "created_at": "now()"}
    # A leaf without rows is scanned whatever its indexes are.
    for columns in (FIRST, second, {**FIRST, "routing_key": "'a'"}, {**FIRST, "created_at": "now()"}):
        for state in ("sent_at", "parked_at", "send_after"):
            names, values = (
                ", ".join([*columns, state]),
                ", ".join([*columns.values(), "now() - interval '2 h'"]),
            )
            await traffic.database.execute(
                f"INSERT INTO outbox_table (body, {names}) SELECT '', {values} FROM generate_series(1, 5000)"
            )
    await traffic.database.execute("ANALYZE outbox_table")
    plans = {
        "claim": await explained(traffic.database, QUERIES.claim, *Claims().begin(100).arguments),
        "purge_sent": await explained(traffic.database, QUERIES.purge_sent, 3600.0, 100, 0.0),
        "purge_parked": await explained(traffic.database, QUERIES.purge_parked, 3600.0, 100, 0.0),
        "bodies": await explained(traffic.database, QUERIES.bodies, [1, 2, 3]),
        "back_off": await explained(traffic.database, QUERIES.back_off, [1], [1], [1.0], [""], [1]),
        "reschedule": await explained(traffic.database, QUERIES.reschedule, [1], [1], [1], [0], 1.0),
        "delete_late": await explained(traffic.database, QUERIES.delete_late, [1], [1], [1]),
        "mark_late": await explained(traffic.database, QUERIES.mark_late, [1], [1], [1]),
        "park": await explained(traffic.database, QUERIES.park, [1], [1], [""]),
    }
    for name, plan in plans.items():
        assert "Seq Scan" not in plan, (name, plan)


async def explained(database: asyncpg.Connection, query: str, *arguments: Any) -> str:
    rows = await database.fetch(f"EXPLAIN {query}", *arguments)
    return "\n".join(row[0] for row in rows)


async def test_the_backlog_of_a_partitioned_table_is_estimated_from_its_partitions(traffic: Traffic) -> None:
    await traffic.database.execute(
        "INSERT INTO outbox_table (routing_key, body) SELECT 'a', '' FROM generate_series(1, 12000)"
    )
    # As autovacuum, which analyses partitions one by one.
    await traffic.database.execute("ANALYZE second_part")
    assert (await backlog.measure(traffic.database, TABLE)).due == 12000


async def test_the_inbox_forgets_from_one_partition_what_is_old_there(postgres_url: str) -> None:
    database = await asyncpg.connect(postgres_url)
    await database.execute(
        """
        CREATE TABLE outbox_inbox (
            queue text, message_id text, handled_at timestamptz NOT NULL DEFAULT now(),
            PRIMARY KEY (queue, message_id)
        ) PARTITION BY LIST (queue);
        CREATE INDEX ON outbox_inbox (handled_at);
        CREATE TABLE first_part PARTITION OF outbox_inbox FOR VALUES IN ('old');
        CREATE TABLE second_part PARTITION OF outbox_inbox DEFAULT;
        INSERT INTO outbox_inbox SELECT 'old', n, now() - interval '9 days' FROM generate_series(1, 10) n;
        INSERT INTO outbox_inbox SELECT 'new', n FROM generate_series(1, 10) n
        """
    )
    inbox = Inbox()
    assert await inbox.check(database) == []
    async with database.transaction():
        assert await inbox.purge(database, 7 * 86400, 1000) == 10
    assert await database.fetchval("SELECT count(*) FROM outbox_inbox WHERE queue = 'new'") == 10
    await database.close()
