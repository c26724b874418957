"""`check` on live tables: each way to break one is found and named, and the cure it names helps."""

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from outbox import Emitter, schema


@pytest.fixture
async def connection(postgres_url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(postgres_url)
    await schema.create(connection)
    yield connection
    await connection.close()


CURED_BY_UPGRADE = [
    ("ALTER TABLE outbox_table ALTER id TYPE integer", "wrong_type", "id"),
    ("ALTER TABLE outbox_table ALTER body DROP NOT NULL", "missing_not_null", "body"),
    ("ALTER TABLE outbox_table ALTER message_id DROP NOT NULL", "missing_not_null", "message_id"),
    ("ALTER TABLE outbox_table ALTER sent_at SET NOT NULL", "unwanted_not_null", "sent_at"),
    ("ALTER TABLE outbox_table ALTER send_after DROP DEFAULT", "missing_default", "send_after"),
    ("ALTER TABLE outbox_table ALTER id DROP IDENTITY", "missing_default", "id"),
    ("DROP INDEX outbox_table_pending_idx", "missing_index", "outbox_table_pending_idx"),
    (
        "DROP INDEX outbox_table_timer_idx;"
        "CREATE INDEX outbox_table_timer_idx ON outbox_table (routing_key, timer_id)"
        " WHERE timer_id IS NOT NULL AND sent_at IS NULL AND parked_at IS NULL",
        "missing_index",
        "outbox_table_timer_idx",
    ),
    (
        "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'outbox_table_sent_idx'::regclass",
        "invalid_index",
        "outbox_table_sent_idx",
    ),
    ("DROP TRIGGER outbox_table_notify ON outbox_table", "missing_trigger", "outbox_table_notify"),
    (
        "DROP TRIGGER outbox_table_notify_sooner ON outbox_table",
        "missing_trigger",
        "outbox_table_notify_sooner",
    ),
    (
        "CREATE OR REPLACE FUNCTION outbox_table_notify() RETURNS trigger LANGUAGE plpgsql"
        " AS 'BEGIN RETURN NULL; END'",
        "outdated_trigger",
        "outbox_table_notify",
    ),
    (
        "DROP TRIGGER outbox_table_notify ON outbox_table;"
        "CREATE TRIGGER outbox_table_notify AFTER INSERT ON outbox_table"
        " FOR EACH ROW EXECUTE FUNCTION outbox_table_notify()",
        "outdated_trigger",
        "outbox_table_notify",
    ),
    (
        "ALTER TABLE outbox_table RESET (autovacuum_vacuum_scale_factor)",
        "missing_storage_parameter",
        "autovacuum_vacuum_scale_factor",
    ),
]

CURED_BY_HAND = [
    (
        "ALTER TABLE outbox_table ALTER headers TYPE text",
        "wrong_type",
        "headers",
        "ALTER TABLE outbox_table ALTER COLUMN headers TYPE jsonb USING headers::jsonb",
    ),
    (
        "ALTER TABLE outbox_table DROP CONSTRAINT outbox_table_pkey",
        "missing_key",
        "id",
        'ALTER TABLE "outbox_table" ADD PRIMARY KEY (id)',
    ),
    (
        "ALTER TABLE outbox_table DISABLE TRIGGER outbox_table_notify",
        "disabled_trigger",
        "outbox_table_notify",
        'ALTER TABLE "outbox_table" ENABLE TRIGGER "outbox_table_notify"',
    ),
    (
        "ALTER TABLE outbox_table ENABLE REPLICA TRIGGER outbox_table_notify",
        "disabled_trigger",
        "outbox_table_notify",
        'ALTER TABLE "outbox_table" ENABLE TRIGGER "outbox_table_notify"',
    ),
]


@pytest.mark.parametrize(("damage", "kind", "name"), CURED_BY_UPGRADE)
async def test_damage_is_found_and_upgrade_cures_it(
    connection: Any, damage: str, kind: str, name: str
) -> None:
    await connection.execute(damage)
    problem, *others = await schema.check(connection)
    assert (problem.kind, problem.object) == (kind, name)
    assert {other.kind for other in others} <= {kind}
    assert str(problem).startswith('table "outbox_table": ')
    assert "outbox.schema.upgrade_sql()" in str(problem)
    await schema.upgrade(connection)
    assert await schema.check(connection) == []


@pytest.mark.parametrize(("damage", "kind", "name", "cure"), CURED_BY_HAND)
async def test_damage_is_found_and_the_named_cure_helps(
    connection: Any, damage: str, kind: str, name: str, cure: str
) -> None:
    await connection.execute(damage)
    [problem] = await schema.check(connection)
    assert (problem.kind, problem.object) == (kind, name)
    await connection.execute(cure)
    assert await schema.check(connection) == []


async def test_a_missing_column_is_found_with_the_indexes_it_took_along(connection: Any) -> None:
    await connection.execute("ALTER TABLE outbox_table DROP COLUMN ordering_key")
    found = {(problem.kind, problem.object) for problem in await schema.check(connection)}
    assert found == {
        ("missing_column", "ordering_key"),
        ("missing_index", "outbox_table_keyed_idx"),
        ("missing_index", "outbox_table_ordering_idx"),
        ("missing_index", "outbox_table_pending_idx"),
    }
    await schema.upgrade(connection)
    assert await schema.check(connection) == []


async def test_a_missing_table_is_found(connection: Any) -> None:
    [problem] = await schema.check(connection, "nowhere.Outbox")
    assert problem.kind == "missing_table"
    assert str(problem) == 'table "nowhere"."Outbox": it does not exist; run outbox.schema.create_sql()'


async def emit(connection: Any) -> None:
    async with connection.transaction():
        await Emitter().emit(connection, "k", {})


@pytest.mark.parametrize(
    ("kind", "named"), [("VIEW", "it is a view"), ("MATERIALIZED VIEW", "it is a materialized view")]
)
async def test_a_view_is_named_as_one(connection: Any, kind: str, named: str) -> None:
    await connection.execute(f"CREATE {kind} looks_alike AS SELECT * FROM outbox_table")
    [problem] = await schema.check(connection, "looks_alike")
    assert (problem.kind, problem.object) == ("not_a_table", "looks_alike")
    assert str(problem) == f'table "looks_alike": {named}; give the name of the table itself'
    for change in (schema.create, schema.upgrade):
        with pytest.raises(asyncpg.RaiseError, match='"looks_alike" is not a table'):
            await change(connection, "looks_alike")


@pytest.mark.parametrize(
    ("column", "found"),
    [
        ("tenant text NOT NULL", [("unfilled_column", "tenant")]),
        ('"The tenant" text NOT NULL', [("unfilled_column", "The tenant")]),
        ("tenant text", []),
        ("tenant text NOT NULL DEFAULT 'acme'", []),
        ("number bigint GENERATED ALWAYS AS IDENTITY", []),
        ("size int NOT NULL GENERATED ALWAYS AS (length(body)) STORED", []),
        ("tenant with_default NOT NULL", []),
    ],
)
async def test_a_column_that_no_emit_can_fill_is_found(
    connection: Any, column: str, found: list[tuple[str, str]]
) -> None:
    await connection.execute("CREATE DOMAIN with_default AS text DEFAULT 'acme'")
    await connection.execute(f"ALTER TABLE outbox_table ADD COLUMN {column}")
    problems = await schema.check(connection)
    assert [(problem.kind, problem.object) for problem in problems] == found
    if not found:
        await emit(connection)
        return
    assert not any(problem.stops_relay for problem in problems)
    with pytest.raises(asyncpg.NotNullViolationError):
        await emit(connection)
    cure = str(problems[0]).partition("run ")[2].partition(", or")[0]
    await connection.execute(cure)
    assert await schema.check(connection) == []
    await emit(connection)


async def test_a_column_whose_domain_takes_no_null_is_found(connection: Any) -> None:
    await connection.execute("CREATE DOMAIN required AS text NOT NULL")
    await connection.execute("ALTER TABLE outbox_table ADD COLUMN tenant required")
    [problem] = await schema.check(connection)
    assert (problem.kind, problem.object) == ("unfilled_column", "tenant")
    with pytest.raises(asyncpg.NotNullViolationError):
        await emit(connection)
    cure = str(problem).partition("run ")[2].partition(" with")[0]
    await connection.execute(f"{cure} 'acme'")
    assert await schema.check(connection) == []
    await emit(connection)


async def test_a_column_filled_by_the_users_trigger_is_fine(connection: Any) -> None:
    await connection.execute(
        """
        ALTER TABLE outbox_table ADD COLUMN tenant text NOT NULL;
        CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql
            AS $$ BEGIN NEW.tenant := 'acme'; RETURN NEW; END $$;
        CREATE TRIGGER fill BEFORE INSERT ON outbox_table FOR EACH ROW EXECUTE FUNCTION fill();
        """
    )
    await emit(connection)
    assert await schema.check(connection) == []


async def test_a_table_for_another_channel_is_outdated(connection: Any) -> None:
    assert [problem.kind for problem in await schema.check(connection, channel="x")] == [
        "outdated_trigger",
        "outdated_trigger",
    ]
    await schema.upgrade(connection, channel="x")
    assert await schema.check(connection, channel="x") == []


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE outbox_table ADD COLUMN tenant uuid NOT NULL DEFAULT gen_random_uuid()",
        "CREATE INDEX mine ON outbox_table (created_at)",
        "ALTER INDEX outbox_table_pending_idx RENAME TO renamed",
        "ALTER INDEX outbox_table_pending_idx SET (fillfactor = 70)",
        "ALTER TRIGGER outbox_table_notify ON outbox_table RENAME TO renamed",
        "ALTER TABLE outbox_table ENABLE ALWAYS TRIGGER outbox_table_notify",
        "ALTER TABLE outbox_table SET (autovacuum_vacuum_scale_factor = 0.2, fillfactor = 50)",
        "ALTER TABLE outbox_table ALTER tracking_ids DROP DEFAULT, ALTER tracking_ids TYPE jsonb,"
        " ALTER tracking_ids SET DEFAULT '[]'",
        "ALTER TABLE outbox_table ALTER routing_key TYPE varchar",
        "ALTER TABLE outbox_table ALTER created_at SET DEFAULT clock_timestamp()",
    ],
)
async def test_what_a_user_adds_or_renames_is_no_problem(connection: Any, change: str) -> None:
    await connection.execute(change)
    assert await schema.check(connection) == []
    await schema.upgrade(connection)
    assert await schema.check(connection) == []


async def test_an_index_of_the_right_shape_is_not_built_twice(connection: Any) -> None:
    await connection.execute("ALTER INDEX outbox_table_pending_idx RENAME TO mine")
    await schema.upgrade(connection)
    await schema.create(connection)
    names = await connection.fetch("SELECT indexname FROM pg_indexes WHERE tablename = 'outbox_table'")
    assert "mine" in {row["indexname"] for row in names}
    assert "outbox_table_pending_idx" not in {row["indexname"] for row in names}
