"""`outbox schema` on a real database."""

import asyncio
import json

import asyncpg

from tests.integration.commanding import outbox


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
