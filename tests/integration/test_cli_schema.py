"""`outbox schema` on a real database."""

import asyncio
import json

import asyncpg

from tests.integration.commanding import outbox
from tests.integration.pgbouncer import PgBouncer


def _execute(url: str, sql: str) -> None:
    async def execute() -> None:
        connection = await asyncpg.connect(url)
        await connection.execute(sql)
        await connection.close()

    asyncio.run(execute())


def test_a_table_is_missing_then_made_then_as_it_should_be(postgres_url: str) -> None:
    missing = outbox("schema", "check", OUTBOX_DATABASE_URL=postgres_url)
    assert missing.status == 1
    assert missing.output == 'table "outbox_table": it does not exist; run `outbox schema create`\n'

    made = outbox("schema", "create", OUTBOX_DATABASE_URL=postgres_url)
    assert (made.status, made.output) == (
        0,
        'table "outbox_table" is there, with its indexes and triggers\n',
    )

    checked = outbox("schema", "check", "--database-url", postgres_url)
    assert (checked.status, checked.output) == (0, 'table "outbox_table" is as it should be\n')


def test_what_is_printed_makes_a_table_that_is_as_it_should_be(postgres_url: str) -> None:
    printed = outbox("schema", "print", "--table", "Shop Outbox")
    _execute(postgres_url, printed.output)
    checked = outbox("schema", "check", "--table", "Shop Outbox", OUTBOX_DATABASE_URL=postgres_url)
    assert checked.status == 0


def test_a_damaged_table_is_told_as_json_and_mended_by_an_upgrade(postgres_url: str) -> None:
    outbox("schema", "create", OUTBOX_DATABASE_URL=postgres_url)
    _execute(postgres_url, "ALTER TABLE outbox_table DROP COLUMN last_error")
    refused = outbox("schema", "create", OUTBOX_DATABASE_URL=postgres_url)
    assert refused.status == 1
    assert refused.errors == (
        'outbox: table "outbox_table" exists and lacks columns last_error; '
        "run `outbox schema upgrade` to bring it to the present\n"
    )

    checked = outbox("schema", "check", "-o", "json", OUTBOX_DATABASE_URL=postgres_url)
    assert checked.status == 1
    assert json.loads(checked.output) == [
        {
            "kind": "missing_column",
            "object": "last_error",
            "message": ('table "outbox_table": column "last_error" is missing; run `outbox schema upgrade`'),
            "is_warning": False,
        }
    ]

    assert outbox("schema", "upgrade", OUTBOX_DATABASE_URL=postgres_url).status == 0
    assert outbox("schema", "check", OUTBOX_DATABASE_URL=postgres_url).status == 0


def test_a_wrong_url_is_one_line_without_the_password() -> None:
    told = outbox("schema", "check", "--database-url", "postgresql://app:geheim@127.0.0.1:1/shop")
    assert told.status == 1
    assert told.errors.startswith("outbox: Postgres 127.0.0.1:1/shop (user app): ")
    assert told.errors.count("\n") == 1
    assert "geheim" not in told.errors + told.output


def test_a_table_name_that_cannot_be_is_one_line() -> None:
    told = outbox("schema", "print", "--table", "a.b.c")
    assert told.status == 1
    assert told.errors.startswith("outbox: table name 'a.b.c' has 3 parts; ")


def test_an_upgrade_says_its_steps_and_locks_and_then_takes_them(postgres_url: str) -> None:
    outbox("schema", "create", OUTBOX_DATABASE_URL=postgres_url)
    _execute(
        postgres_url,
        "ALTER TABLE outbox_table DROP COLUMN last_error; DROP INDEX outbox_table_sent_idx;"
        " DROP TRIGGER outbox_table_notify ON outbox_table",
    )
    steps = (
        "columns: missing column last_error\n"
        "    locks: ACCESS EXCLUSIVE: reads and writes wait\n"
        "index outbox_table_sent_idx: build it\n"
        "    locks: SHARE UPDATE EXCLUSIVE: emits and the relay go on\n"
        "missing trigger outbox_table_notify\n"
        "    locks: SHARE ROW EXCLUSIVE: emits wait\n"
    )
    planned = outbox("schema", "upgrade", "--dry-run", OUTBOX_DATABASE_URL=postgres_url)
    assert (planned.status, planned.output) == (0, steps)
    assert outbox("schema", "check", OUTBOX_DATABASE_URL=postgres_url).status == 1

    upgraded = outbox("schema", "upgrade", OUTBOX_DATABASE_URL=postgres_url)
    current = 'table "outbox_table" is as it should be\n'
    assert (upgraded.status, upgraded.output) == (0, steps + current)
    again = outbox("schema", "upgrade", "--dry-run", OUTBOX_DATABASE_URL=postgres_url)
    assert (again.status, again.output) == (0, current)


def test_an_upgrade_says_what_is_left_for_a_person(postgres_url: str) -> None:
    outbox("schema", "create", OUTBOX_DATABASE_URL=postgres_url)
    _execute(postgres_url, "ALTER TABLE outbox_table ADD COLUMN tenant text NOT NULL")
    upgraded = outbox("schema", "upgrade", "-o", "json", OUTBOX_DATABASE_URL=postgres_url)
    assert upgraded.status == 1
    told = json.loads(upgraded.output)
    assert told["steps"] == []
    assert [problem["kind"] for problem in told["problems"]] == ["unfilled_column"]


def test_an_upgrade_behind_a_pooler_in_transaction_mode_works_as_well(postgres_url: str) -> None:
    outbox("schema", "create", OUTBOX_DATABASE_URL=postgres_url)
    _execute(
        postgres_url, "ALTER TABLE outbox_table DROP COLUMN last_error; DROP INDEX outbox_table_sent_idx"
    )
    with PgBouncer(postgres_url) as pooler:
        pooler.start("transaction", in_turn=True)
        pooler.open_sessions(3)
        upgraded = outbox("schema", "upgrade", OUTBOX_DATABASE_URL=pooler.url)
        assert (upgraded.status, upgraded.errors) == (0, "")
        assert upgraded.output.endswith('table "outbox_table" is as it should be\n')


def test_an_upgrade_of_nothing_or_of_a_view_says_so(postgres_url: str) -> None:
    missing = outbox("schema", "upgrade", OUTBOX_DATABASE_URL=postgres_url)
    assert (missing.status, missing.errors) == (
        1,
        'outbox: table "outbox_table": it does not exist; run `outbox schema create`\n',
    )
    _execute(postgres_url, "CREATE VIEW seen AS SELECT 1 AS id")
    seen = outbox("schema", "upgrade", "--table", "seen", OUTBOX_DATABASE_URL=postgres_url)
    assert seen.status == 1
    assert "it is a view; give the name of the table itself" in seen.errors
