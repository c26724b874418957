"""The inbox's SQL, and what is said of a table that is none."""

import re
from importlib import resources
from types import SimpleNamespace

import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from outbox.schema.observation import ObservedColumn, ObservedIndex, ObservedTable
from outbox.table import TableName
from outbox_worker.inbox import Inbox, create_sql, problems
from outbox_worker.transactions import causes, transactions_of

TABLE = TableName.parse("outbox_inbox")
URL = "postgresql://app:s3cret@db/shop"


def squeezed(sql: str) -> str:
    return re.sub(r"\s+", " ", sql).strip()


def test_the_values_of_a_note_are_written_out_as_text_and_nothing_else() -> None:
    inbox = Inbox('shop."in $1"')
    assert squeezed(inbox.note_text("q", "it's $2; COMMIT")) == (
        """INSERT INTO "shop"."in $1" (queue, message_id) VALUES ('q'::text, 'it''s $2; COMMIT'::text) """
        "ON CONFLICT (queue, message_id) DO NOTHING RETURNING pg_catalog.txid_current()"
    )
    assert squeezed(inbox.find_text("q", "b\\c")) == (
        r"""SELECT 1 FROM "shop"."in $1" """
        r"""WHERE queue::text = 'q'::text AND message_id::text = E'b\\c'::text"""
    )


def test_every_query_of_the_file_is_used_and_explained() -> None:
    script = resources.files("outbox_worker").joinpath("inbox.sql").read_text()
    names = re.findall(r"^-- name: (\w+)\n(.*)$", script, re.MULTILINE)
    used = {name.lstrip("_") for name in vars(Inbox()) if not name.endswith("_parts") and name != "table"}
    assert {name for name, _ in names} == used
    assert all(following.startswith("-- ") for _, following in names)


def test_a_table_is_created_under_its_own_name_with_its_own_index() -> None:
    sql = create_sql('shop."My inbox"')
    assert 'CREATE TABLE "shop"."My inbox" (' in sql
    assert 'CREATE INDEX "My inbox_handled_idx" ON "shop"."My inbox" (handled_at)' in sql


def column(name: str, kind: str = "text", *, filled: bool = False) -> ObservedColumn:
    return ObservedColumn(name, kind, nullable=False, filled=filled)


QUEUE, MESSAGE_ID = column("queue"), column("message_id")
HANDLED_AT = column("handled_at", "timestamp with time zone", filled=True)
KEY = ObservedIndex("outbox_inbox_pkey", "UNIQUE btree (queue, message_id)", usable=True)


@pytest.mark.parametrize(
    ("observed", "named"),
    [
        (ObservedTable((QUEUE, MESSAGE_ID, HANDLED_AT), (KEY,), ()), []),
        (ObservedTable((column("mine", filled=True), QUEUE, MESSAGE_ID, HANDLED_AT), (KEY,), ()), []),
        (
            ObservedTable((column("mine"), QUEUE, MESSAGE_ID, HANDLED_AT), (KEY,), ()),
            ['ALTER COLUMN "mine" DROP NOT NULL'],
        ),
        (ObservedTable((QUEUE, MESSAGE_ID, HANDLED_AT), (), (), kind="v"), ["it is not a table"]),
        (ObservedTable((column("queue", "character varying"), MESSAGE_ID, HANDLED_AT), (KEY,), ()), []),
        (None, ["it does not exist; run outbox_worker.inbox.create_sql()"]),
        (ObservedTable((QUEUE, HANDLED_AT), (KEY,), ()), ["column message_id is missing"]),
        (
            ObservedTable((column("queue", "uuid"), MESSAGE_ID, HANDLED_AT), (KEY,), ()),
            ["is uuid and must be text"],
        ),
        (
            ObservedTable((QUEUE, MESSAGE_ID, column("handled_at", HANDLED_AT.type)), (KEY,), ()),
            ["lacks its default now()"],
        ),
        (ObservedTable((QUEUE, MESSAGE_ID, HANDLED_AT), (), ()), ["ADD PRIMARY KEY (queue, message_id)"]),
        (
            ObservedTable((QUEUE, HANDLED_AT), (), ()),
            ["column message_id is missing", "ADD PRIMARY KEY (queue, message_id)"],
        ),
    ],
)
def test_what_is_wrong_with_a_table_is_said_a_line_each(
    observed: ObservedTable | None, named: list[str]
) -> None:
    found = problems(observed, TABLE)
    assert len(found) == len(named)
    for problem, part in zip(found, named, strict=True):
        assert problem.startswith('table "outbox_inbox": ')
        assert part in problem


def test_a_partial_or_unfinished_index_keeps_nothing_from_being_noted_twice() -> None:
    columns = (QUEUE, MESSAGE_ID, HANDLED_AT)
    for index in (
        ObservedIndex("i", "UNIQUE btree (queue, message_id)", usable=False),
        ObservedIndex("i", "UNIQUE btree (queue, message_id) WHERE (queue = 'q'::text)", usable=True),
        ObservedIndex("i", "btree (queue, message_id)", usable=True),
        ObservedIndex("i", "UNIQUE btree (message_id)", usable=True),
    ):
        assert len(problems(ObservedTable(columns, (index,), ()), TABLE)) == 1


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({}, "exactly one of db_engine and db_engine_url"),
        ({"db_engine": object(), "db_engine_url": URL}, "exactly one of"),
        ({"db_engine": create_engine("postgresql+psycopg://")}, "give an AsyncEngine"),
        ({"db_engine": "postgresql://db/shop"}, "give an AsyncEngine"),
        (
            {"db_engine": SimpleNamespace(sync_engine=1, dialect=SimpleNamespace(name="mysql"))},
            "lives in Postgres, and db_engine is on mysql",
        ),
        ({"db_engine_url": "mysql://db/shop"}, "not one of Postgres"),
        ({"db_engine_url": URL, "size": 0}, "size 0"),
        ({"db_engine_url": URL, "table": "a.b.c"}, "'a.b.c' has 3 parts"),
    ],
)
def test_a_mistake_is_said_before_anything_is_opened(arguments: dict[str, object], named: str) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(named)) as refused:
        transactions_of(**arguments)  # type: ignore[arg-type]
    assert "s3cret" not in str(refused.value)


def test_an_engine_or_a_url_is_enough() -> None:
    transactions_of(db_engine=create_async_engine("postgresql+asyncpg://"))
    transactions_of(db_engine_url=URL)


def test_the_causes_of_an_error_come_to_an_end() -> None:
    first, second, third = ValueError("1"), KeyError("2"), OSError("3")
    first.__cause__ = second
    second.__context__ = third
    third.__cause__ = first
    assert list(causes(first)) == [first, second, third]
