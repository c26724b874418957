"""Names of tables, and the SQL text they become."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox.table import COLUMNS, INDEXES, TableName, quote_identifier, quote_literal

_identifiers = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=15)


@pytest.mark.parametrize(
    ("text", "schema", "name", "sql"),
    [
        ("outbox_table", None, "outbox_table", '"outbox_table"'),
        ("shop.outbox_table", "shop", "outbox_table", '"shop"."outbox_table"'),
        ("Shop.OutboxTable", "Shop", "OutboxTable", '"Shop"."OutboxTable"'),
        ('"My.Table"', None, "My.Table", '"My.Table"'),
        ('"my.shop"."out.box"', "my.shop", "out.box", '"my.shop"."out.box"'),
        ('shop."out.box"', "shop", "out.box", '"shop"."out.box"'),
        ('"we""ird"', None, 'we"ird', '"we""ird"'),
        ('we"ird', None, 'we"ird', '"we""ird"'),
        ("my table", None, "my table", '"my table"'),
        ('x"; DROP TABLE victim; --', None, 'x"; DROP TABLE victim; --', '"x""; DROP TABLE victim; --"'),
        ("line\nbreak", None, "line\nbreak", '"line\nbreak"'),
    ],
)
def test_a_name_is_read_as_it_is_and_rendered_quoted(
    text: str, schema: str | None, name: str, sql: str
) -> None:
    table = TableName.parse(text)
    assert (table.schema, table.name) == (schema, name)
    assert table.sql == str(table) == sql


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "table name '' has an empty part"),
        ('""', "table name '' has an empty part"),
        (".", "table name '.' has an empty part"),
        ("shop.", "table name 'shop.' has an empty part"),
        (".outbox", "table name '.outbox' has an empty part"),
        ("db.shop.outbox", "table name 'db.shop.outbox' has 3 parts; write table or schema.table"),
        ("x" * 64, "is 64 bytes long and Postgres would cut it; use at most 63"),
        ("shop." + "é" * 32, "is 64 bytes long"),
        ("a\0b", "contains a NUL character"),
        ('"shop', "has an unbalanced double quote"),
        ('"shop"x', "has an unbalanced double quote"),
        ('"shop".x"y"."z', "has an unbalanced double quote"),
    ],
)
def test_an_impossible_name_is_refused_with_the_reason(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match="table name") as caught:
        TableName.parse(text)
    assert complaint in str(caught.value)


def test_the_longest_name_is_accepted() -> None:
    assert TableName.parse("x" * 63).name == "x" * 63


def test_a_parsed_name_is_taken_as_it_is() -> None:
    table = TableName("shop", "a.b")
    assert TableName.parse(table) is table


@given(st.none() | _identifiers, _identifiers)
def test_every_name_is_read_back_from_its_sql(schema: str | None, name: str) -> None:
    table = TableName(schema, name)
    assert TableName.parse(table.sql) == table


def test_the_names_of_what_belongs_to_a_table_follow_its_name() -> None:
    table = TableName.parse("shop.Outbox")
    assert table.derived("pending_idx") == "Outbox_pending_idx"
    assert table.derived_sql("notify") == '"shop"."Outbox_notify"'


@pytest.mark.parametrize("name", ["x" * 63, "é" * 31, "語" * 21, "x" * 52])
def test_derived_names_of_long_names_fit_and_stay_distinct(name: str) -> None:
    suffixes = [index.suffix for index in INDEXES]
    sibling = name[:-1] + "y"
    derived = [TableName(None, table).derived(suffix) for table in (name, sibling) for suffix in suffixes]
    assert len(set(derived)) == len(derived)
    assert all(len(text.encode()) <= 63 for text in derived)


def test_a_shortened_name_never_changes() -> None:
    assert TableName(None, "x" * 63).derived("pending_idx") == "x" * 42 + "_75220b47_pending_idx"


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("plain", "'plain'"),
        ("it's", "'it''s'"),
        ("back\\slash", " E'back\\\\slash'"),
        ("\\'; DROP TABLE victim; --", " E'\\\\''; DROP TABLE victim; --'"),
    ],
)
def test_a_literal_is_quoted_for_either_setting_of_standard_conforming_strings(text: str, sql: str) -> None:
    assert quote_literal(text) == sql


def test_a_literal_with_a_nul_character_is_refused() -> None:
    with pytest.raises(ValueError, match="NUL character; remove it"):
        quote_literal("a\0b")


def test_an_identifier_is_quoted_exactly() -> None:
    assert quote_identifier('We"ird') == '"We""ird"'


def test_the_names_of_columns_need_no_quotes() -> None:
    assert all(column.name.isidentifier() and column.name.islower() for column in COLUMNS)


def test_indexes_are_made_of_the_tables_columns() -> None:
    names = {column.name for column in COLUMNS}
    assert {key for index in INDEXES for key in index.keys} <= names


def test_everything_is_explained() -> None:
    docs = [column.doc for column in COLUMNS] + [index.doc for index in INDEXES]
    assert all(doc.endswith(".") for doc in docs)
