"""A look at real databases: each thing that can be wrong with one has its reason and its cure."""

import socket
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from outbox import schema
from outbox_operator.conditions import Finding
from outbox_operator.database import look
from outbox_operator.database_view import DatabaseView
from outbox_operator.resources.condition import ConditionStatus, ConditionType
from outbox_operator.resources.relay import Database
from tests.integration.pgbouncer import PgBouncer
from tests.integration.relaying import until

SECRET = "s3cret"  # noqa: S105 - made up
PATIENCE_SECONDS = 60.0
"""A busy machine may take long; nothing but a failure waits for all of it."""


@pytest.fixture
async def owner(postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A session of whoever may do everything."""
    connection = await asyncpg.connect(postgres_url)
    yield connection
    await connection.close()


@pytest.fixture
async def role(owner: asyncpg.Connection, postgres_url: str) -> AsyncIterator[str]:
    """The name and password of a role that may connect, and no more."""
    name = f"{urlsplit(postgres_url).path[1:]}_role"
    await owner.execute(
        f"CREATE ROLE {name} LOGIN PASSWORD '{name}'; REVOKE ALL ON SCHEMA public FROM PUBLIC"
    )
    yield name
    await owner.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


def changed(url: str, *, user: str = "", password: str = "", path: str = "", query: str = "") -> str:
    """The URL with other parts."""
    parts = urlsplit(url)
    netloc = f"{user or parts.username}:{password or parts.password}@{parts.hostname}:{parts.port}"
    return urlunsplit(parts._replace(netloc=netloc, path=path or parts.path, query=query))


def wanted(**spec: Any) -> Database:
    return Database.model_validate({"secretRef": {"name": "shop-db"}, **spec})


async def looked(url: str, **spec: Any) -> DatabaseView:
    return await look(url, wanted(**spec), timeout_seconds=PATIENCE_SECONDS)


def of(view: DatabaseView, kind: ConditionType) -> Finding:
    (finding,) = (finding for finding in view.findings if finding.type is kind)
    return finding


def assert_unready(view: DatabaseView, reason: str, *words: str) -> None:
    """The database was entered, and this is wrong with it."""
    assert of(view, ConditionType.CREDENTIALS_VALID).status is ConditionStatus.TRUE
    finding = of(view, ConditionType.DATABASE_READY)
    assert (finding.status, finding.reason) == (ConditionStatus.FALSE, reason)
    assert [part for part in words if part not in finding.message] == []
    assert (view.backlog, view.oldest_seconds, view.oldest_pending_at, view.parked) == (None,) * 4


def assert_shut_out(
    view: DatabaseView, reason: str, *words: str, status: ConditionStatus = ConditionStatus.FALSE
) -> None:
    """The database was not entered, for this reason."""
    finding = of(view, ConditionType.CREDENTIALS_VALID)
    assert (finding.status, finding.reason) == (status, reason)
    assert [part for part in words if part not in finding.message] == []
    assert SECRET not in finding.message
    assert of(view, ConditionType.DATABASE_READY).status is ConditionStatus.UNKNOWN
    assert view.backlog is None


def assert_ready(view: DatabaseView) -> None:
    assert [finding.status for finding in view.findings] == [ConditionStatus.TRUE] * 2, view.findings


# -- the table


async def test_a_missing_table_is_created_where_that_is_asked_for(
    owner: asyncpg.Connection, postgres_url: str
) -> None:
    view = await looked(postgres_url, table="Shop table", channel="shop", manageSchema="Create")
    assert_ready(view)
    assert (view.backlog, view.oldest_seconds, view.oldest_pending_at, view.parked) == (0, 0.0, None, 0)
    assert await schema.check(owner, "Shop table", "shop") == []


async def test_a_missing_table_is_told_where_it_is_only_checked(
    owner: asyncpg.Connection, postgres_url: str
) -> None:
    view = await looked(postgres_url, manageSchema="Check")
    assert_unready(view, "SchemaMissing", 'table "outbox_table" does not exist', "create_sql()", "to Create")
    assert [problem.kind for problem in await schema.check(owner)] == ["missing_table"]


async def test_a_schema_that_is_not_there_is_named(postgres_url: str) -> None:
    view = await looked(postgres_url, table="nowhere.outbox_table")
    assert_unready(view, "SchemaMissing", 'schema "nowhere" does not exist', "spec.database.table")


@pytest.mark.parametrize("manage", ["Create", "Check"])
async def test_an_outdated_table_is_told_by_its_columns_and_left_alone(
    owner: asyncpg.Connection, postgres_url: str, manage: str
) -> None:
    await schema.create(owner)
    await owner.execute("ALTER TABLE outbox_table DROP COLUMN ordering_key, DROP COLUMN headers")
    view = await looked(postgres_url, manageSchema=manage)
    assert_unready(
        view,
        "SchemaOutdated",
        'table "outbox_table": missing column headers, ordering_key; missing index outbox_table_pending_idx',
        "as its owner, run outbox.schema.upgrade_sql()",
    )
    assert of(view, ConditionType.DATABASE_READY).message.count("upgrade_sql") == 1
    await schema.upgrade(owner)
    assert_ready(await looked(postgres_url, manageSchema=manage))


async def test_what_only_a_person_can_mend_is_told_with_its_own_cure(
    owner: asyncpg.Connection, postgres_url: str
) -> None:
    await schema.create(owner)
    await owner.execute("ALTER TABLE outbox_table ALTER headers TYPE text, DROP COLUMN timer_id")
    view = await looked(postgres_url)
    assert_unready(view, "SchemaOutdated", "wrong type headers; missing column timer_id; missing index")
    cures = "ALTER COLUMN headers TYPE jsonb with a fitting USING and run outbox.schema.upgrade_sql()"
    assert of(view, ConditionType.DATABASE_READY).message.endswith(cures)


# -- rights


async def test_a_role_that_may_not_create_is_told_what_to_grant(
    owner: asyncpg.Connection, postgres_url: str, role: str
) -> None:
    await owner.execute(f"GRANT USAGE ON SCHEMA public TO {role}")
    url = changed(postgres_url, user=role, password=role)
    view = await looked(url)
    assert_unready(
        view,
        "PermissionDenied",
        f'role "{role}" can neither find nor make table "outbox_table"',
        "permission denied for schema public",
        "grant it USAGE and CREATE on the schema",
    )
    await owner.execute(f"GRANT CREATE ON SCHEMA public TO {role}")
    assert_ready(await looked(url))


async def test_a_role_that_may_not_look_into_the_schema_is_told_so(
    owner: asyncpg.Connection, postgres_url: str, role: str
) -> None:
    await owner.execute("CREATE SCHEMA shop")
    await schema.create(owner, "shop.outbox_table")
    url = changed(postgres_url, user=role, password=role)
    view = await looked(url, table="shop.outbox_table")
    assert_unready(view, "PermissionDenied", "permission denied for schema shop", f'role "{role}"')


async def test_a_role_without_rights_on_the_table_is_told_which(
    owner: asyncpg.Connection, postgres_url: str, role: str
) -> None:
    await schema.create(owner)
    await owner.execute(f"GRANT USAGE ON SCHEMA public TO {role}; GRANT SELECT ON outbox_table TO {role}")
    url = changed(postgres_url, user=role, password=role)
    cure = f'GRANT UPDATE, DELETE ON "outbox_table" TO "{role}"'
    view = await looked(url, manageSchema="Check")
    assert_unready(view, "PermissionDenied", f'role "{role}" lacks UPDATE, DELETE on table', f"run {cure}")
    await owner.execute(cure)
    assert_ready(await looked(url, manageSchema="Check"))


async def test_a_role_that_may_not_connect_is_told_what_to_grant(
    owner: asyncpg.Connection, postgres_url: str, role: str
) -> None:
    await owner.execute(f"REVOKE CONNECT ON DATABASE {urlsplit(postgres_url).path[1:]} FROM PUBLIC")
    view = await looked(changed(postgres_url, user=role, password=role))
    assert_unready(view, "PermissionDenied", "GRANT CONNECT ON DATABASE")


async def test_a_database_that_takes_no_changes_is_told_so(
    owner: asyncpg.Connection, postgres_url: str
) -> None:
    await schema.create(owner)
    database = urlsplit(postgres_url).path[1:]
    await owner.execute(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
    assert_unready(await looked(postgres_url), "ReadOnly", "takes no changes", "the primary's host")


# -- the door


async def test_a_wrong_password_is_told_without_it(postgres_url: str) -> None:
    view = await looked(changed(postgres_url, password=SECRET))
    assert_shut_out(view, "AuthenticationFailed", "password authentication failed", "check the user and the")


async def test_a_missing_database_is_told_by_its_name(postgres_url: str) -> None:
    view = await looked(changed(postgres_url, path="/nowhere"))
    assert_unready(view, "DatabaseMissing", 'database "nowhere" does not exist', "create the database")


async def test_a_port_that_nobody_listens_on_is_unreachable() -> None:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        port = unheard.getsockname()[1]
        view = await looked(f"postgresql://app:{SECRET}@127.0.0.1:{port}/shop")
    assert_shut_out(view, "Unreachable", f"Postgres 127.0.0.1:{port}/shop (user app)", "check the host")


async def test_a_service_that_is_not_there_is_named_with_its_namespace() -> None:
    view = await looked(f"postgresql://app:{SECRET}@no-such-service.shop.svc/shop")
    assert_shut_out(view, "Unreachable", "There is no Service no-such-service in namespace shop")


async def test_a_long_name_that_nobody_knows_is_unreachable() -> None:
    view = await looked(f"postgresql://app:{SECRET}@no-such-host.invalid/shop")
    assert_shut_out(view, "Unreachable", "no-such-host.invalid")
    assert "Service" not in of(view, ConditionType.CREDENTIALS_VALID).message


async def test_a_server_that_never_answers_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        url = f"postgresql://app:{SECRET}@127.0.0.1:{port}/shop"
        view = await look(url, wanted(), timeout_seconds=0.2)
    assert_shut_out(view, "Unreachable", f"127.0.0.1:{port}/shop", "no answer in time")


async def test_certificates_that_only_pods_have_leave_it_open(postgres_url: str) -> None:
    url = changed(postgres_url, query="sslmode=verify-full&sslrootcert=/nowhere/ca.crt")
    view = await looked(url)
    assert_shut_out(
        view, "FileMissing", "the operator opens none", "caSecretRef", status=ConditionStatus.UNKNOWN
    )


@pytest.mark.parametrize("query", ["no_such_setting=1", "connect_timeout=soon"])
async def test_a_parameter_that_cannot_be_is_told_to_come_from_the_url(postgres_url: str, query: str) -> None:
    assert_shut_out(await looked(changed(postgres_url, query=query)), "InvalidUri", query.partition("=")[0])


# -- what waits


async def test_what_is_due_and_what_is_parked_are_counted(
    owner: asyncpg.Connection, postgres_url: str
) -> None:
    await schema.create(owner)
    insert = "INSERT INTO outbox_table (routing_key, body, send_after, sent_at, parked_at) VALUES ('a', '', "
    for values, count in {
        "'2024-02-29T12:00:00Z', NULL, NULL": 1,
        "now(), NULL, NULL": 2,
        "now() + interval '1 hour', NULL, NULL": 3,
        "now(), now(), NULL": 4,
        "now(), NULL, now()": 5,
    }.items():
        for _ in range(count):
            await owner.execute(f"{insert}{values})")
    view = await looked(postgres_url, manageSchema="Check")
    assert_ready(view)
    assert (view.backlog, view.parked) == (3, 5)
    assert view.oldest_pending_at == datetime(2024, 2, 29, 12, tzinfo=UTC)
    assert view.oldest_seconds is not None
    assert view.oldest_seconds > 365 * 24 * 3600


async def test_a_locked_table_is_not_waited_for(owner: asyncpg.Connection, postgres_url: str) -> None:
    await schema.create(owner)
    async with owner.transaction():
        await owner.execute("LOCK TABLE outbox_table")
        view = await look(postgres_url, wanted(), timeout_seconds=2)
        finding = of(view, ConditionType.DATABASE_READY)
        assert (finding.status, finding.reason) == (ConditionStatus.UNKNOWN, "Timeout")
        assert of(view, ConditionType.CREDENTIALS_VALID).status is ConditionStatus.TRUE
        await until_nobody_looks(owner)
    assert_ready(await looked(postgres_url))


async def test_a_look_leaves_no_session_behind(owner: asyncpg.Connection, postgres_url: str) -> None:
    for _ in range(3):
        assert_ready(await looked(postgres_url))
    await until_nobody_looks(owner)


async def until_nobody_looks(owner: asyncpg.Connection) -> None:
    """Wait until the server has no session of the operator: it notices a little later that one has gone."""

    async def holds() -> bool:
        # A transaction sees the same activity until its end, unless it asks for a newer one.
        await owner.execute("SELECT pg_stat_clear_snapshot()")
        sessions = await owner.fetchval(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name = 'outbox-operator'"
        )
        return bool(sessions == 0)

    await until(holds, "the operator's sessions to end")


@pytest.fixture
def pooler(postgres_url: str) -> Iterator[PgBouncer]:
    with PgBouncer(postgres_url) as pooler:
        pooler.start("transaction")
        yield pooler


async def test_behind_a_pooler_in_transaction_mode_it_looks_as_well(pooler: PgBouncer) -> None:
    for _ in range(3):
        assert_ready(await looked(pooler.url))
