"""The DDL as text, and the judgement of a table's observed facts."""

import json
import re
import sys
from dataclasses import replace

import pytest

from outbox import schema
from outbox.schema.inspection import Expected, problems
from outbox.schema.observation import (
    ObservedColumn,
    ObservedIndex,
    ObservedPolicy,
    ObservedRowSecurity,
    ObservedTable,
    ObservedTrigger,
)
from outbox.schema.quoting import dollar_quoted
from outbox.schema.trigger import TRIGGERS, former_function_source, function_source
from outbox.table import COLUMNS, INDEXES, STORAGE, TableName

EXPECTED = Expected.of("outbox_table", "outbox_channel")
HEALTHY = ObservedTable(
    columns=tuple(
        ObservedColumn(
            column.name, column.type, column.nullable, column.identity or column.default is not None
        )
        for column in COLUMNS
    ),
    indexes=(
        ObservedIndex("outbox_table_pkey", "UNIQUE btree (id)", usable=True),
        *(ObservedIndex(f"outbox_table_{index.suffix}", index.shape, usable=True) for index in INDEXES),
    ),
    triggers=tuple(
        ObservedTrigger(
            f"outbox_table_{trigger.suffix}",
            trigger.type,
            trigger.new_rows,
            function_source("outbox_channel"),
            enabled=True,
        )
        for trigger in TRIGGERS
    ),
    storage=tuple(parameter.name for parameter in STORAGE),
)


def with_column(name: str, /, **changes: object) -> ObservedTable:
    return replace(
        HEALTHY,
        columns=tuple(
            replace(column, **changes) if column.name == name else column  # type: ignore[arg-type]
            for column in HEALTHY.columns
        ),
    )


def with_index(name: str, /, **changes: object) -> ObservedTable:
    return replace(
        HEALTHY,
        indexes=tuple(
            replace(index, **changes) if index.name == name else index  # type: ignore[arg-type]
            for index in HEALTHY.indexes
        ),
    )


def with_trigger(**changes: object) -> ObservedTable:
    changed, *others = HEALTHY.triggers
    return replace(HEALTHY, triggers=(replace(changed, **changes), *others))  # type: ignore[arg-type]


def without_column(name: str) -> ObservedTable:
    return replace(HEALTHY, columns=tuple(column for column in HEALTHY.columns if column.name != name))


def without_index(name: str) -> ObservedTable:
    return replace(HEALTHY, indexes=tuple(index for index in HEALTHY.indexes if index.name != name))


@pytest.mark.parametrize(
    ("observed", "kind", "name", "message"),
    [
        (
            None,
            "missing_table",
            "outbox_table",
            'table "outbox_table": it does not exist; run outbox.schema.create_sql()',
        ),
        (
            without_column("headers"),
            "missing_column",
            "headers",
            'table "outbox_table": column "headers" is missing; run outbox.schema.upgrade_sql()',
        ),
        (
            with_column("id", type="integer"),
            "wrong_type",
            "id",
            'table "outbox_table": column "id" is integer and must be bigint; '
            "run outbox.schema.upgrade_sql()",
        ),
        (
            with_column("routing_key", type="character varying(20)"),
            "wrong_type",
            "routing_key",
            'table "outbox_table": column "routing_key" is character varying(20) and must be text; '
            'run ALTER TABLE "outbox_table" ALTER COLUMN routing_key TYPE text with a fitting USING',
        ),
        (
            with_column("body", nullable=True),
            "missing_not_null",
            "body",
            'table "outbox_table": column "body" takes NULL and must not; run outbox.schema.upgrade_sql()',
        ),
        (
            with_column("sent_at", nullable=False),
            "unwanted_not_null",
            "sent_at",
            'table "outbox_table": column "sent_at" must take NULL; run outbox.schema.upgrade_sql()',
        ),
        (
            with_column("send_after", filled=False),
            "missing_default",
            "send_after",
            'table "outbox_table": column "send_after" lacks its default now(); '
            "run outbox.schema.upgrade_sql()",
        ),
        (
            with_column("id", filled=False),
            "missing_default",
            "id",
            'table "outbox_table": column "id" lacks its identity; run outbox.schema.upgrade_sql()',
        ),
        (
            without_index("outbox_table_pkey"),
            "missing_key",
            "id",
            'table "outbox_table": column "id" is no primary key; '
            'run ALTER TABLE "outbox_table" ADD PRIMARY KEY (id)',
        ),
        (
            without_index("outbox_table_pending_idx"),
            "missing_index",
            "outbox_table_pending_idx",
            'table "outbox_table": index "outbox_table_pending_idx", btree (send_after, id) '
            "WHERE ((ordering_key IS NULL) AND (sent_at IS NULL) AND (parked_at IS NULL)), is missing; "
            "run outbox.schema.upgrade_sql()",
        ),
        (
            with_index("outbox_table_sent_idx", shape="btree (sent_at)"),
            "missing_index",
            "outbox_table_sent_idx",
            'table "outbox_table": index "outbox_table_sent_idx", btree (sent_at) '
            "WHERE (sent_at IS NOT NULL), is missing; run outbox.schema.upgrade_sql()",
        ),
        (
            with_index("outbox_table_timer_idx", usable=False),
            "invalid_index",
            "outbox_table_timer_idx",
            'table "outbox_table": index "outbox_table_timer_idx" was not built to its end; '
            "drop it and run outbox.schema.upgrade_sql()",
        ),
        (
            replace(HEALTHY, triggers=HEALTHY.triggers[:1]),
            "missing_trigger",
            "outbox_table_notify_sooner",
            'table "outbox_table": trigger "outbox_table_notify_sooner" is missing; '
            "run outbox.schema.upgrade_sql()",
        ),
        (
            with_trigger(source=function_source("another_channel")),
            "outdated_trigger",
            "outbox_table_notify",
            'table "outbox_table": trigger "outbox_table_notify" is of another version or for another '
            "channel; run outbox.schema.upgrade_sql()",
        ),
        (
            with_trigger(type=5),
            "outdated_trigger",
            "outbox_table_notify",
            'table "outbox_table": trigger "outbox_table_notify" is of another version or for another '
            "channel; run outbox.schema.upgrade_sql()",
        ),
        (
            with_trigger(source=former_function_source("outbox_channel")),
            "older_trigger",
            "outbox_table_notify",
            'table "outbox_table": trigger "outbox_table_notify" notifies at every commit, as it is of the '
            "version before; when the relays are upgraded, run outbox.schema.upgrade_sql()",
        ),
        (
            replace(HEALTHY, storage=("fillfactor",)),
            "missing_storage_parameter",
            "autovacuum_vacuum_scale_factor",
            'table "outbox_table": storage parameter autovacuum_vacuum_scale_factor is not set, so that '
            "vacuum comes late; run outbox.schema.upgrade_sql()",
        ),
        (
            with_trigger(enabled=False),
            "disabled_trigger",
            "outbox_table_notify",
            'table "outbox_table": trigger "outbox_table_notify" is disabled; '
            'run ALTER TABLE "outbox_table" ENABLE TRIGGER "outbox_table_notify"',
        ),
    ],
)
def test_a_problem_names_the_object_and_the_cure(
    observed: ObservedTable | None, kind: str, name: str, message: str
) -> None:
    [problem] = problems(observed, EXPECTED)
    assert (problem.kind, problem.object, str(problem)) == (kind, name, message)


@pytest.mark.parametrize(
    "observed",
    [
        HEALTHY,
        replace(
            HEALTHY,
            columns=(*HEALTHY.columns, ObservedColumn("tenant", "uuid", nullable=False, filled=True)),
        ),
        with_column("tracking_ids", type="jsonb"),
        with_column("headers", type="json"),
        with_column("routing_key", type="character varying"),
        with_index("outbox_table_pending_idx", name="renamed"),
        with_index("outbox_table_pkey", shape="UNIQUE btree (id, created_at)"),
        with_trigger(name="renamed"),
        replace(HEALTHY, storage=(*HEALTHY.storage, "fillfactor")),
        # Postgres has storage parameters for partitions only.
        replace(HEALTHY, kind="p", storage=()),
        replace(HEALTHY, partitioned_by=("routing_key",)),
        # Postgres has no unique index over partitions that are told apart by another column.
        replace(without_index("outbox_table_timer_idx"), partitioned_by=("created_at",)),
        replace(without_index("outbox_table_timer_idx"), partitioned_by=("",)),
    ],
)
def test_what_will_do_is_no_problem(observed: ObservedTable) -> None:
    assert problems(observed, EXPECTED) == []


@pytest.mark.parametrize(("partitioned_by", "index"), [("routing_key", "timer_idx"), ("id", "sent_idx")])
def test_a_partitioned_table_needs_each_index_that_it_can_have(partitioned_by: str, index: str) -> None:
    observed = replace(without_index(f"outbox_table_{index}"), partitioned_by=(partitioned_by,))
    assert [problem.object for problem in problems(observed, EXPECTED)] == [f"outbox_table_{index}"]


def test_a_partial_unique_index_is_no_key() -> None:
    observed = with_index("outbox_table_pkey", shape="UNIQUE btree (id) WHERE (sent_at IS NULL)")
    assert [problem.kind for problem in problems(observed, EXPECTED)] == ["missing_key"]


def test_all_problems_are_told_at_once() -> None:
    kinds = [problem.kind for problem in problems(ObservedTable((), (), ()), EXPECTED)]
    assert kinds == [
        *["missing_column"] * len(COLUMNS),
        "missing_key",
        *["missing_index"] * len(INDEXES),
        *["missing_trigger"] * len(TRIGGERS),
        *["missing_storage_parameter"] * len(STORAGE),
    ]


def test_facts_are_read_from_the_document() -> None:
    column = {"name": "id", "type": "bigint", "nullable": False, "filled": True}
    index = {"name": "i", "shape": "btree (id)", "usable": True}
    trigger = {"name": "t", "type": 4, "new_rows": None, "source": "", "enabled": True}
    facts: dict[str, object] = {"columns": [column], "indexes": [index], "triggers": [trigger]}
    policy = {"name": "p", "command": "ALL", "permissive": True, "applies": True, "condition": "true"}
    facts |= {"partitioned_by": ["id"], "kind": "p", "storage": ["fillfactor"]}
    facts["row_security"] = {"role": "relay", "commands": ["SELECT"], "policies": [policy]}
    document = json.dumps(facts)
    assert ObservedTable.read(document) == ObservedTable(
        (ObservedColumn("id", "bigint", nullable=False, filled=True),),
        (ObservedIndex("i", "btree (id)", usable=True),),
        (ObservedTrigger("t", 4, None, "", enabled=True),),
        ("id",),
        kind="p",
        row_security=ObservedRowSecurity(
            "relay",
            ("SELECT",),
            (ObservedPolicy("p", "ALL", permissive=True, applies=True, condition="true"),),
        ),
        storage=("fillfactor",),
    )
    facts["row_security"] = None
    assert ObservedTable.read(json.dumps(facts)).row_security is None


@pytest.mark.parametrize("sql", [schema.create_sql(), schema.upgrade_sql(), schema.drop_sql()])
def test_the_sql_is_one_statement_that_sqlalchemy_and_drivers_leave_alone(sql: str) -> None:
    assert sql.startswith("DO $outbox$\n")
    assert sql.endswith("\n$outbox$;")
    assert sql.count("$outbox$") == 2
    assert "%" not in sql
    # What sqlalchemy.text() takes for a parameter.
    assert re.search(r"(?<![:\w\\]):(\w+)(?!:)", sql) is None


@pytest.mark.parametrize(
    "text", ["", "$outbox$", "$outbox", "$outbox_1$ $outbox$", "x $outbox_$", "'$$'", "$out"]
)
def test_a_dollar_quoted_text_cannot_end_its_quotes(text: str) -> None:
    quoted = dollar_quoted(text, "outbox")
    tag = re.match(r"\$\w+\$", quoted)
    assert tag is not None
    assert quoted.index(tag[0], len(tag[0])) == len(quoted) - len(tag[0])
    assert quoted == f"{tag[0]}{text}{tag[0]}"


@pytest.mark.parametrize(
    ("channel", "complaint"),
    [
        ("", "the channel is empty"),
        ("é" * 32, "is 64 bytes long; NOTIFY takes at most 63"),
        ("a\0b", "NUL character"),
    ],
)
def test_an_impossible_channel_is_refused(channel: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=re.escape(complaint)):
        schema.create_sql(channel=channel)


@pytest.mark.parametrize(
    ("payload", "table", "answer"),
    [
        ("public.outbox_table", "outbox_table", True),
        ("shop.outbox_table", "outbox_table", True),
        ("shop.outbox_table", "shop.outbox_table", True),
        ("public.outbox_table", "shop.outbox_table", False),
        ("public.another", "outbox_table", False),
        ('public."Outbox.Table"', '"Outbox.Table"', True),
        ("", "outbox_table", True),
    ],
)
def test_a_notification_tells_which_table_it_is_about(payload: str, table: str, answer: bool) -> None:
    assert schema.concerns(payload, TableName.parse(table)) is answer


def test_the_lock_of_a_table_never_changes_and_fits_64_bits() -> None:
    assert schema.advisory_key("outbox_table") == -783586963345310826
    keys = {schema.advisory_key(f"table_{number}") for number in range(1000)}
    assert len(keys) == 1000
    assert all(-(2**63) <= key < 2**63 for key in keys)


def test_the_sqlalchemy_table_without_sqlalchemy_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    with pytest.raises(ImportError, match="install sqlalchemy"):
        schema.table(object())


async def test_an_unknown_session_is_refused() -> None:
    with pytest.raises(TypeError, match="object"):
        await schema.create(object())


def test_a_session_that_has_to_be_awaited_is_refused_by_the_plain_form() -> None:
    from sqlalchemy.ext.asyncio import AsyncSession

    with pytest.raises(TypeError, match=r"AsyncSession has to be awaited; use create, upgrade or check"):
        schema.check_sync(AsyncSession())


def test_a_table_that_is_to_have_no_triggers_may_have_those_of_others() -> None:
    expected = Expected.of("outbox_table", "outbox_channel", notify=False)
    ours = replace(
        HEALTHY, triggers=tuple(replace(live, function="outbox_table_notify") for live in HEALTHY.triggers)
    )
    assert [problem.kind for problem in problems(ours, expected)] == ["unwanted_trigger"] * 2
    assert not any(problem.stops_relay for problem in problems(ours, expected))
    assert problems(replace(HEALTHY, triggers=()), expected) == []
    others = tuple(replace(live, function="audit") for live in HEALTHY.triggers)
    assert problems(replace(HEALTHY, triggers=others), expected) == []
