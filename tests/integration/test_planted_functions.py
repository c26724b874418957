"""Nobody who may create in `public` gets their functions or operators called by the product's statements."""

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from outbox import schema
from outbox.table import TableName
from outbox_core import backlog
from outbox_core.database import Database
from outbox_operator.database import look
from outbox_operator.resources.condition import ConditionStatus
from outbox_operator.resources.references import SecretRef
from outbox_operator.resources.relay import Database as Wanted
from tests.integration.commanding import outbox_beside
from tests.integration.planted import plant

TABLE = TableName.parse("outbox_table")


@pytest.fixture
async def connection(postgres_url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(postgres_url)
    assert await plant(connection) > 1000
    yield connection
    await connection.close()


@pytest.mark.usefixtures("connection")
@pytest.mark.parametrize("is_old", [False, True])
async def test_the_schema_is_created_checked_and_upgraded(postgres_url: str, is_old: bool) -> None:
    database = Database(postgres_url)
    connection = await database.connect()
    await schema.create(connection, TABLE)
    if is_old:
        await connection.execute(
            "ALTER TABLE outbox_table DROP COLUMN message_id, DROP COLUMN ordering_key, ALTER id TYPE integer"
        )
        for step in await schema.plan_upgrade(connection, TABLE):
            await connection.execute(step.sql)
    assert [problem for problem in await schema.check(connection, TABLE) if problem.stops_relay] == []
    await connection.close()


@pytest.mark.usefixtures("connection")
async def test_the_commands_look_at_messages(postgres_url: str) -> None:
    for words in (
        ("schema", "create"),
        ("emit", "user.created", "{}", "--delay", "1h"),
        ("messages", "list", "--older-than", "1s", "--routing-key", "user.*"),
        ("messages", "show", "1"),
        ("messages", "retry"),
        ("messages", "purge", "--state", "pending", "--yes", "--newer-than", "1h"),
        ("schema", "check"),
    ):
        told = await outbox_beside(*words, OUTBOX_DATABASE_URL=postgres_url)
        assert (told.status, told.errors) == (0, ""), words


async def test_the_operator_and_the_relay_count(connection: Any, postgres_url: str) -> None:
    wanted = Wanted(secret_ref=SecretRef(name="x"), manage_schema="Create")
    view = await look(postgres_url, wanted)
    assert [finding.status for finding in view.findings] == [ConditionStatus.TRUE] * 2, view.findings
    assert (await backlog.measure(connection, TABLE)).due == 0
