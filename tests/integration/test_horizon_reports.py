"""Who says that vacuum is held back: the relay once, the operator in a condition, `outbox status`."""

import json
import logging
import uuid
from collections.abc import AsyncIterator

import asyncpg
import pytest
from prometheus_client import REGISTRY

from outbox import schema
from outbox.table import TableName
from outbox_core import backlog
from outbox_core.database import Database
from outbox_core.horizon_holder import LONG_SECONDS, MANY_DEAD_ROWS
from outbox_operator.database_access import DatabaseAccess
from outbox_operator.database_process import DatabaseProcess
from outbox_operator.faults import Faults
from outbox_operator.reconciling.databases import Databases
from outbox_operator.resources import OutboxRelay
from outbox_operator.resources.condition import ConditionStatus, ConditionType
from outbox_relay.metrics import Metrics
from outbox_relay.queries import Queries
from outbox_relay.settings import Settings
from outbox_relay.upkeep import Upkeep
from tests.integration.commanding import outbox_beside
from tests.integration.relaying import until

TABLE = TableName.parse("outbox_table")


@pytest.fixture
async def database(lone_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A session with an outbox table."""
    connection = await asyncpg.connect(lone_url)
    await schema.create(connection)
    yield connection
    await connection.close()


@pytest.fixture
async def forgotten(database: asyncpg.Connection, lone_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A session that keeps a snapshot since before many rows were deleted."""
    session = await asyncpg.connect(lone_url, server_settings={"application_name": "report"})
    await session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")
    await delete_many(database)
    yield session
    session.terminate()


async def delete_many(database: asyncpg.Connection) -> None:
    await database.execute(
        "INSERT INTO outbox_table (routing_key, body, send_after) "
        f"SELECT 'a', '', 'infinity' FROM generate_series(1, {MANY_DEAD_ROWS})"
    )
    await database.execute("DELETE FROM outbox_table")

    async def are_counted() -> bool:
        return (await backlog.measure(database, TABLE)).dead_rows >= MANY_DEAD_ROWS

    await until(are_counted, f"{MANY_DEAD_ROWS} dead rows")


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Watched:
    """The upkeep of a relay, as often as the test wants it."""

    def __init__(self, url: str, database: asyncpg.Connection) -> None:
        self._database = database
        self._exchange = f"outbox-{uuid.uuid4().hex[:8]}"
        self._clock = Clock()
        settings = Settings(exchange_name=self._exchange)
        metrics = Metrics(self._exchange)
        self._upkeep = Upkeep(settings, Database(url), Queries(TABLE), metrics, lambda: 0, clock=self._clock)

    async def passes(self, seconds: float) -> None:
        """Look once a minute for so long."""
        end = self._clock.now + seconds
        while self._clock.now < end:
            self._clock.now = min(end, self._clock.now + 60)
            await self._upkeep.run_once(self._database)

    def metric(self, name: str) -> float | None:
        return REGISTRY.get_sample_value(name, {"exchange_name": self._exchange})


@pytest.fixture
def watched(lone_url: str, database: asyncpg.Connection, caplog: pytest.LogCaptureFixture) -> Watched:
    caplog.set_level(logging.INFO, "outbox.relay")
    return Watched(lone_url, database)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [message for message in caplog.messages if message.startswith("vacuum")]


HELD, RELEASED = "vacuum cannot remove dead rows", "vacuum is no longer held back"


async def test_the_relay_says_once_what_holds_back_vacuum_and_once_that_it_is_gone(
    watched: Watched,
    database: asyncpg.Connection,
    forgotten: asyncpg.Connection,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await watched.passes(LONG_SECONDS)
    assert said(caplog) == []
    await watched.passes(LONG_SECONDS)
    assert said(caplog) == [HELD]
    [record] = [record for record in caplog.records if record.getMessage() == HELD]
    fields = record.__dict__["fields"]
    pid = forgotten.get_server_pid()
    assert fields["held_by"].startswith(
        f'session {pid} (application "report", role "outbox", database "test_'
    )
    assert fields["cure"] == f"end it with `SELECT pg_catalog.pg_terminate_backend({pid})`"
    assert fields["dead_rows"] >= MANY_DEAD_ROWS
    dead, held = watched.metric("outbox_table_dead_rows"), "outbox_vacuum_horizon_held_seconds"
    assert dead is not None
    assert dead >= MANY_DEAD_ROWS
    assert watched.metric(held) == 2 * LONG_SECONDS - 60

    await forgotten.execute("ROLLBACK")
    await watched.passes(LONG_SECONDS)
    assert said(caplog) == [HELD, RELEASED]
    assert watched.metric(held) == 0
    await database.execute("VACUUM outbox_table")
    await watched.passes(60)
    assert watched.metric("outbox_table_dead_rows") == 0
    assert said(caplog) == [HELD, RELEASED]


async def test_transactions_that_follow_each_other_are_nothing_to_say(
    watched: Watched,
    database: asyncpg.Connection,
    forgotten: asyncpg.Connection,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for _ in range(4):
        await watched.passes(LONG_SECONDS / 2)
        await forgotten.execute("ROLLBACK")
        await database.execute("SELECT pg_current_xact_id()")
        await forgotten.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")
    assert said(caplog) == []


async def test_nothing_is_looked_for_while_there_are_few_dead_rows(
    watched: Watched, database: asyncpg.Connection, lone_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    session = await asyncpg.connect(lone_url)
    await session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")
    queries: list[str] = []
    database.add_query_logger(lambda record: queries.append(record.query))
    await watched.passes(2 * LONG_SECONDS)
    session.terminate()
    assert said(caplog) == []
    assert watched.metric("outbox_vacuum_horizon_held_seconds") == 0
    assert any("AS dead_rows" in query for query in queries)
    assert [query for query in queries if "pg_stat_activity" in query] == []


@pytest.fixture
async def database_process() -> AsyncIterator[DatabaseProcess]:
    async with DatabaseProcess() as process:
        yield process


async def test_the_operator_says_it_in_a_condition_that_goes_with_the_holder(
    lone_url: str, forgotten: asyncpg.Connection, database_process: DatabaseProcess
) -> None:
    clock, access = Clock(), DatabaseAccess(lone_url)
    databases = Databases(database_process.look, 30.0, Faults(), clock)
    secrets = {name: {"secretRef": {"name": name}} for name in ("database", "broker")}
    relay = OutboxRelay.model_validate({"metadata": {"name": "main", "namespace": "shop"}, "spec": secrets})
    first = await databases.look(relay, access)
    assert first.is_ready
    assert first.vacuum is None
    clock.now += LONG_SECONDS
    view = await databases.look(relay, access)
    assert view.is_ready
    assert view.vacuum is not None
    assert (view.vacuum.type, view.vacuum.status) == (ConditionType.VACUUM_EFFECTIVE, ConditionStatus.FALSE)
    assert view.vacuum.reason == "HeldBySession"
    pid = forgotten.get_server_pid()
    begin = (
        f'more than 100,000 dead rows of table "outbox_table" cannot be removed, because of session {pid} ('
    )
    assert view.vacuum.message.startswith(begin)
    assert view.vacuum.message.endswith(f"; end it with `SELECT pg_catalog.pg_terminate_backend({pid})`")
    clock.now += 60
    again = await databases.look(relay, access)
    assert again.vacuum == view.vacuum
    await forgotten.execute("ROLLBACK")
    clock.now += 60
    assert (await databases.look(relay, access)).vacuum is None


async def test_status_has_the_holder_and_complains_of_none_that_is_young(
    forgotten: asyncpg.Connection, lone_url: str
) -> None:
    young = await outbox_beside("status", "--database-url", lone_url, "-o", "json")
    assert young.status == 0, young
    said = json.loads(young.output)
    table = said["relays"][0]["table"]
    assert table["dead_rows"] >= MANY_DEAD_ROWS
    holder = table["horizon_holder"]
    assert (holder["kind"], holder["pid"], holder["name"]) == (
        "session",
        forgotten.get_server_pid(),
        "report",
    )
    assert said["findings"] == []
