"""Nobody who may create in `public` gets their functions or operators called by the product's statements."""

import asyncio
import re
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import psycopg
import pytest
from psycopg import sql

from outbox import Emitter, OutboxMessage, listen, schema
from outbox.drivers import Statement
from outbox.inserts import Inserts
from outbox.table import TableName
from outbox_cli.local import Services
from outbox_core import backlog
from outbox_core.database import Database
from outbox_core.horizon import oldest_holder
from outbox_operator.database import look
from outbox_operator.resources.condition import ConditionStatus
from outbox_operator.resources.references import SecretRef
from outbox_operator.resources.relay import Database as Wanted
from outbox_relay.queries import Queries
from outbox_worker.inbox import Inbox
from tests.integration.commanding import outbox_beside
from tests.integration.planted import is_called, plant, unqualified
from tests.integration.relaying import Traffic, traffic_between
from tests.integration.working import Calls, Workshop, workshop_at

TABLE = TableName.parse("outbox_table")
INBOX = Inbox()
_OUTBOX_VARCHAR = """
ALTER TABLE outbox_table ALTER routing_key TYPE varchar, ALTER content_type TYPE varchar,
    ALTER ordering_key TYPE varchar, ALTER timer_id TYPE varchar, ALTER last_error TYPE varchar
"""
"""Columns of a type that tables of others have, and on which Postgres' own operators need a cast."""
_INBOX_VARCHAR = "ALTER TABLE outbox_inbox ALTER queue TYPE varchar, ALTER message_id TYPE varchar"

STATEMENTS = {
    **{f"relay {name}": text for name, text in vars(Queries(TABLE)).items()},
    **{
        f"emit {name}": statement.dollar
        for name in Inserts.__slots__
        for statement in [getattr(Inserts.into(TABLE), name)]
    },
    **{
        f"inbox {name.lstrip('_')}": statement.dollar
        for name, statement in vars(INBOX).items()
        if isinstance(statement, Statement)
    },
    "inbox note, written out": INBOX.note_text("a", "b"),
    "inbox find, written out": INBOX.find_text("a", "b"),
    "inbox forget, written out": INBOX.forget_text("a", "b"),
}


@pytest.fixture(scope="module")
def template(services: Services) -> Iterator[str]:
    """A database where everything is planted, which takes a while."""
    name = f"template_{uuid.uuid4().hex}"
    with psycopg.connect(services.postgres.url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        assert asyncio.run(plant(_at(services, name))) > 10_000
        yield name
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def postgres_url(services: Services, template: str) -> Iterator[str]:
    """A copy of it for one test."""
    name = f"test_{uuid.uuid4().hex}"
    copy = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
    with psycopg.connect(services.postgres.url, autocommit=True) as connection:
        connection.execute(copy.format(sql.Identifier(name), sql.Identifier(template)))
        yield _at(services, name)
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def _at(services: Services, name: str) -> str:
    return urlunsplit(urlsplit(services.postgres.url)._replace(path=f"/{name}"))


@pytest.fixture
async def connection(postgres_url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(postgres_url)
    yield connection
    assert not await is_called(connection)
    await connection.close()


@pytest.fixture
async def traffic(
    connection: asyncpg.Connection, postgres_url: str, rabbitmq_url: str
) -> AsyncIterator[Traffic]:
    async with traffic_between(postgres_url, rabbitmq_url) as traffic:
        yield traffic


@pytest.fixture
async def workshop(rabbitmq_url: str) -> AsyncIterator[Workshop]:
    async with workshop_at(rabbitmq_url) as workshop:
        yield workshop


async def test_what_is_planted_would_be_called(postgres_url: str) -> None:
    connection = await asyncpg.connect(postgres_url)
    for call, planted in (
        ("quote_ident('x'::name)", "quote_ident(name)"),
        ("unnest('{1}'::bigint[])", "unnest(bigint[])"),
        ("to_json(now())", "to_json(timestamp with time zone)"),
        ("'x'::varchar = 'x'::text", "character varying = text"),
        ("'{1}'::smallint[] <@ '{1}'::smallint[]", "smallint[] <@ smallint[]"),
    ):
        with pytest.raises(asyncpg.RaiseError, match=re.escape(planted)):
            await connection.fetch(f"SELECT {call}")
    assert await is_called(connection)
    await connection.close()


async def test_every_call_and_catalog_in_a_statement_has_its_schema(connection: Any) -> None:
    assert set(await unqualified(connection)) == set()


async def test_no_statement_needs_what_is_planted(connection: Any) -> None:
    """Whoever may not call it is refused by the plan of a statement that would, in whatever branch."""
    await schema.create(connection, TABLE)
    await INBOX.create(connection)
    await connection.execute(
        "REVOKE ALL ON ALL FUNCTIONS IN SCHEMA public FROM PUBLIC;"
        "DO 'BEGIN CREATE ROLE victim; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END';"
        "GRANT ALL ON outbox_table, outbox_inbox TO victim"
    )
    await connection.execute("SET ROLE victim")
    assert await _refused(connection) == {}
    await connection.execute(f"RESET ROLE; {_OUTBOX_VARCHAR}; {_INBOX_VARCHAR}; SET ROLE victim")
    assert await _refused(connection) == {}


async def _refused(connection: Any) -> dict[str, str]:
    refused = {}
    for name, text in STATEMENTS.items():
        count = max(map(int, re.findall(r"\$(\d+)", text)), default=0)
        arguments = f"({', '.join(['NULL'] * count)})" if count else ""
        await connection.execute(f"PREPARE statement AS {text}")
        try:
            await connection.execute(f"EXPLAIN EXECUTE statement{arguments}")
        except asyncpg.InsufficientPrivilegeError as error:
            refused[name] = str(error)
        await connection.execute("DEALLOCATE statement")
    return refused


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
    await schema.create(connection, TABLE, notify=False)
    await connection.execute(schema.drop_sql(TABLE))
    await INBOX.create(connection)
    assert await INBOX.check(connection) == []
    await connection.close()


@pytest.mark.usefixtures("connection")
async def test_the_commands_look_at_messages(postgres_url: str) -> None:
    for words in (
        ("schema", "create"),
        ("emit", "user.created", "{}", "--delay", "1h"),
        ("messages", "list", "--older-than", "0s", "--routing-key", "user.*"),
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
    other = await asyncpg.connect(postgres_url)
    async with other.transaction():
        await other.execute("INSERT INTO outbox_table (routing_key, body) VALUES ('a', '')")
        assert await oldest_holder(connection) is not None
    await other.close()


@pytest.mark.parametrize(
    "change", ["SELECT", f"{_OUTBOX_VARCHAR}; {_INBOX_VARCHAR}"], ids=["our types", "varchar"]
)
async def test_messages_go_from_the_emitter_through_relay_and_worker(
    traffic: Traffic, workshop: Workshop, postgres_url: str, change: str
) -> None:
    workshop.exchange_name = traffic.exchange_name
    await INBOX.create(traffic.database)
    await traffic.database.execute(change)
    calls = Calls()
    emitter = Emitter(auto_create_table=True)

    @listen("user.*", queue=workshop.queue(), exactly_once=True)
    async def handler(body: int, connection: asyncpg.Connection) -> None:
        calls.note(body)
        if body < 4:
            await emitter.emit(connection, "user.followed", body + 10)

    await workshop.working(handler, db_engine_url=postgres_url)
    await traffic.relaying(clean_up_after="never")
    # Not asyncpg, which on connections of applications looks types up by statements of its own.
    async with await psycopg.AsyncConnection.connect(postgres_url) as application:
        await emitter.emit(application, "user.created", 0)
        await emitter.emit(application, "user.created", 1, timer_id="t")
        await emitter.emit(application, "user.created", 2, timer_id="t", replace=True)
        await emitter.emit(application, "user.created", 99, timer_id="gone")
        assert await emitter.cancel_timer(application, "user.created", "gone")
        await emitter.bulk_emit(
            application, [OutboxMessage("user.created", 3, ordering_key="k"), OutboxMessage("lost", 4)]
        )
    told = await outbox_beside("emit", "user.created", "5", OUTBOX_DATABASE_URL=postgres_url)
    assert (told.status, told.errors) == (0, "")
    await workshop.until_called(calls, 7)
    assert sorted(calls.bodies) == [0, 2, 3, 5, 10, 12, 13]
    await workshop.until_empty(handler.queue)
    await traffic.until_table(
        "(SELECT count(*) = 1 AND min(attempts) > 0 FROM outbox_table WHERE sent_at IS NULL)",
        "one message to be tried again, and all others to be sent",
    )
    assert len(await traffic.database.fetch("SELECT FROM outbox_inbox")) == 7
