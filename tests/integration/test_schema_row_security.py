"""Row-level security that hides messages from the relay's role: found by `check`, and by whoever uses it."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from outbox import Emitter, MessageRelay, schema
from outbox.table import TableName
from outbox_core.database import Database as RelayDatabase
from outbox_operator.database import look
from outbox_operator.resources.condition import ConditionStatus, ConditionType
from outbox_operator.resources.relay import Database
from outbox_relay import Settings, TableError
from outbox_relay.metrics import Metrics
from outbox_relay.queries import Queries
from outbox_relay.upkeep import Upkeep
from tests.integration.commanding import outbox_beside

ENABLE = "ALTER TABLE outbox_table ENABLE ROW LEVEL SECURITY"
FORCE = "ALTER TABLE outbox_table FORCE ROW LEVEL SECURITY"
OF_TENANT = "(routing_key = current_setting('shop.tenant', true))"


@dataclass(frozen=True)
class Role:
    """A role that is granted what a relay needs, and a connection with it."""

    name: str
    url: str
    connection: asyncpg.Connection

    @property
    def sql(self) -> str:
        return f'"{self.name}"'


@pytest.fixture
async def owner(postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(postgres_url)
    await schema.create(connection)
    yield connection
    await connection.close()


@pytest.fixture
async def relay(owner: asyncpg.Connection, postgres_url: str) -> AsyncIterator[Role]:
    parts = urlsplit(postgres_url)
    name = f"{parts.path[1:]}_Relay"
    await owner.execute(
        f"CREATE ROLE \"{name}\" LOGIN PASSWORD 'relay'; "
        f'GRANT SELECT, INSERT, UPDATE, DELETE ON outbox_table TO "{name}"'
    )
    url = urlunsplit(parts._replace(netloc=f"{name}:relay@{parts.hostname}:{parts.port}"))
    connection = await asyncpg.connect(url)
    yield Role(name, url, connection)
    await connection.close()
    await owner.execute(f'RESET ROLE; DROP OWNED BY "{name}"; DROP ROLE "{name}"')


async def found(connection: asyncpg.Connection) -> list[tuple[str, bool]]:
    return [(problem.kind, problem.stops_relay) for problem in await schema.check(connection)]


HIDDEN = [("rows_hidden_from_role", True)]
FILTERED = [("rows_filtered_for_role", False)]


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        ([], HIDDEN),
        (["USING (true)"], []),
        (["TO {role} USING (true)"], []),
        (["TO pg_monitor USING (true)"], HIDDEN),
        (["FOR SELECT USING (true)"], HIDDEN),
        (["FOR INSERT WITH CHECK (true)"], HIDDEN),
        (["FOR SELECT USING (true)", "FOR UPDATE USING (true)"], HIDDEN),
        (["FOR SELECT USING (true)", "FOR UPDATE USING (true)", "FOR DELETE USING (true)"], []),
        (["USING (false)"], HIDDEN),
        (["WITH CHECK (true)"], HIDDEN),
        (["AS RESTRICTIVE USING (true)"], HIDDEN),
        (["USING (true)", "AS RESTRICTIVE USING (false)"], HIDDEN),
        (["USING (true)", "AS RESTRICTIVE USING (true)"], []),
        (["USING (true)", f"AS RESTRICTIVE USING {OF_TENANT}"], FILTERED),
        ([f"USING {OF_TENANT}"], FILTERED),
        ([f"USING {OF_TENANT}", "TO {role} USING (true)"], []),
        ([f"TO pg_monitor USING {OF_TENANT}", "TO {role} USING (true)"], []),
    ],
    ids=str,
)
async def test_policies_that_hide_rows_are_found_and_the_named_cure_helps(
    owner: asyncpg.Connection, relay: Role, policies: list[str], expected: list[tuple[str, bool]]
) -> None:
    await owner.execute("INSERT INTO outbox_table (routing_key, body) VALUES ('a', ''), ('b', '')")
    await owner.execute(ENABLE)
    for number, policy in enumerate(policies):
        await owner.execute(f"CREATE POLICY p{number} ON outbox_table {policy.format(role=relay.sql)}")
    assert await found(relay.connection) == expected
    assert await found(owner) == []
    claim = "SELECT FROM outbox_table FOR UPDATE"
    delete = "DELETE FROM outbox_table WHERE id > 0"
    if not expected:
        assert len(await relay.connection.fetch(claim)) == 2
        assert await relay.connection.execute(delete) == "DELETE 2"
        return
    # Nothing fails, and nothing is done: the reason for the check.
    assert "DELETE 0" in (
        f"DELETE {len(await relay.connection.fetch(claim))}",
        await relay.connection.execute(delete),
    )
    [problem] = await schema.check(relay.connection)
    assert problem.object == relay.name
    await owner.execute(problem.message.rpartition("; ")[2].partition("run ")[2])
    assert await schema.check(relay.connection) == []
    # Prepared statements of a session outlive a change of the role's attributes.
    await relay.connection.reload_schema_state()
    await relay.connection.execute("DISCARD PLANS")
    assert len(await relay.connection.fetch(claim)) == 2


async def test_policies_of_a_group_apply_to_its_members(owner: asyncpg.Connection, relay: Role) -> None:
    group = f"{relay.name}_group"
    await owner.execute(
        f'CREATE ROLE "{group}"; {ENABLE}; CREATE POLICY p ON outbox_table TO "{group}" USING (true)'
    )
    try:
        assert await found(relay.connection) == HIDDEN
        await owner.execute(f'GRANT "{group}" TO {relay.sql}')
        assert await found(relay.connection) == []
        # The policy of a role whose rights are not inherited does not apply either.
        await owner.execute(f"ALTER ROLE {relay.sql} NOINHERIT")
        inherits = await owner.fetchval("SELECT pg_has_role($1, $2, 'USAGE')", relay.name, group)
        assert await found(relay.connection) == ([] if inherits else HIDDEN)
    finally:
        await owner.execute(f'DROP POLICY p ON outbox_table; DROP ROLE "{group}"')


async def test_an_owner_is_hidden_rows_only_by_force(owner: asyncpg.Connection, relay: Role) -> None:
    await owner.execute(f"ALTER TABLE outbox_table OWNER TO {relay.sql}")
    await owner.execute(ENABLE)
    assert await found(relay.connection) == []
    await owner.execute(FORCE)
    assert await found(relay.connection) == HIDDEN
    await owner.execute(f"ALTER ROLE {relay.sql} BYPASSRLS")
    assert await found(relay.connection) == []


async def test_a_role_that_may_only_emit_is_told_nothing(owner: asyncpg.Connection, relay: Role) -> None:
    await owner.execute(f"REVOKE SELECT, UPDATE, DELETE ON outbox_table FROM {relay.sql}")
    await owner.execute(f"{ENABLE}; CREATE POLICY emits ON outbox_table FOR INSERT WITH CHECK (true)")
    assert await schema.check(relay.connection) == []
    async with relay.connection.transaction():
        assert await Emitter().emit(relay.connection, "k", {}) is not None


async def test_a_cure_names_a_policy_that_does_not_exist_yet(owner: asyncpg.Connection, relay: Role) -> None:
    await owner.execute(
        f"{ENABLE}; CREATE POLICY outbox_table_relay ON outbox_table FOR SELECT USING (true); "
        "CREATE POLICY outbox_table_relay_2 ON outbox_table FOR INSERT WITH CHECK (true)"
    )
    [problem] = await schema.check(relay.connection)
    assert problem.message == (
        'table "outbox_table": row-level security hides every row from UPDATE, DELETE of role '
        f"{relay.sql}, so that a relay with this role sends nothing; run CREATE POLICY "
        f'"outbox_table_relay_3" ON "outbox_table" TO {relay.sql} USING (true)'
    )


async def test_a_partitioned_table_has_the_policies_of_its_parent(
    owner: asyncpg.Connection, relay: Role
) -> None:
    await owner.execute(
        f"""
        CREATE TABLE parted (LIKE outbox_table INCLUDING DEFAULTS) PARTITION BY LIST (routing_key);
        CREATE TABLE part PARTITION OF parted DEFAULT;
        GRANT SELECT, UPDATE, DELETE ON parted TO {relay.sql};
        ALTER TABLE part ENABLE ROW LEVEL SECURITY;
        """
    )
    kinds = {problem.kind for problem in await schema.check(relay.connection, "parted")}
    assert "rows_hidden_from_role" not in kinds
    await owner.execute("ALTER TABLE parted ENABLE ROW LEVEL SECURITY")
    kinds = {problem.kind for problem in await schema.check(relay.connection, "parted")}
    assert "rows_hidden_from_role" in kinds


async def test_relay_operator_and_command_say_that_rows_are_hidden(
    owner: asyncpg.Connection, relay: Role, rabbitmq_url: str
) -> None:
    async with owner.transaction():
        await Emitter().emit(owner, "k", {})
    await owner.execute(ENABLE)
    cure = f'CREATE POLICY "outbox_table_relay" ON "outbox_table" TO {relay.sql} USING (true)'
    process = MessageRelay(relay.url, rmq_connection_url=rabbitmq_url, exchange_name=relay.name)
    with pytest.raises(TableError) as refused:
        await process.run_once()
    assert f"hides every row from SELECT, UPDATE, DELETE of role {relay.sql}" in str(refused.value)
    assert str(refused.value).endswith(f"run {cure}")
    ready = await database_ready(relay.url)
    assert ready.status is ConditionStatus.FALSE
    assert f"rows hidden from role {relay.name}" in ready.message
    assert ready.message.endswith(f"run {cure}")
    told = await outbox_beside("schema", "check", OUTBOX_DATABASE_URL=relay.url)
    assert (told.status, told.output.endswith(f"run {cure}\n")) == (1, True)

    await owner.execute(cure)
    assert (await database_ready(relay.url)).status is ConditionStatus.TRUE
    told = await outbox_beside("schema", "check", OUTBOX_DATABASE_URL=relay.url)
    assert (told.status, told.output) == (0, 'table "outbox_table" is as it should be\n')
    assert await process.run_once() == 1


async def test_a_policy_with_a_condition_is_a_warning(
    owner: asyncpg.Connection, relay: Role, rabbitmq_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    await owner.execute(f"{ENABLE}; CREATE POLICY tenants ON outbox_table USING {OF_TENANT}")
    await MessageRelay(relay.url, rmq_connection_url=rabbitmq_url, exchange_name=relay.name).run_once()
    assert "row-level security may hide rows from role" in caplog.text
    assert (await database_ready(relay.url)).status is ConditionStatus.TRUE
    told = await outbox_beside("schema", "check", OUTBOX_DATABASE_URL=relay.url)
    assert told.status == 0
    assert told.output.startswith('warning: table "outbox_table": row-level security may hide rows from role')
    assert 'by the conditions of "tenants"; unless that is intended, run CREATE POLICY' in told.output
    told = await outbox_beside("schema", "check", "-o", "json", OUTBOX_DATABASE_URL=relay.url)
    [problem] = json.loads(told.output)
    assert (problem["kind"], problem["is_warning"]) == ("rows_filtered_for_role", True)


async def database_ready(url: str) -> Any:
    wanted = Database.model_validate({"secretRef": {"name": "shop-db"}, "manageSchema": "Check"})
    view = await look(url, wanted, timeout_seconds=60)
    (finding,) = (finding for finding in view.findings if finding.type is ConditionType.DATABASE_READY)
    return finding


async def test_a_relay_is_not_ready_when_rows_are_hidden_while_it_runs(
    owner: asyncpg.Connection, relay: Role
) -> None:
    settings = Settings(enable_metrics=False)
    metrics = Metrics("outbox", exposed=False)
    queries = Queries(TableName.parse(settings.table_name))

    async def problem() -> str | None:
        upkeep = Upkeep(settings, RelayDatabase(relay.url), queries, metrics, lambda: 0)
        await upkeep.run_once(relay.connection)
        return upkeep.problem

    assert await problem() is None
    await owner.execute(ENABLE)
    assert "hides every row from SELECT, UPDATE, DELETE of role" in (await problem() or "")
    await owner.execute(f'CREATE POLICY all_rows ON outbox_table TO "{relay.name}" USING (true)')
    assert await problem() is None
