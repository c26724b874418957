import re
from importlib import resources

import pytest

from outbox.table import TableName
from outbox_relay.queries import Queries

QUERIES = Queries(TableName.parse('shop."My table"'))
ALL = vars(QUERIES)


@pytest.mark.parametrize("name", sorted(ALL.keys() - {"partitions", "writers"}))
def test_every_query_is_for_the_table_and_has_nothing_left_to_fill_in(name: str) -> None:
    sql = ALL[name]
    assert '"shop"."My table"' in sql
    assert not re.search(r"\{\w+\}", sql)


def test_every_query_of_the_file_is_used_and_explained() -> None:
    script = resources.files("outbox_relay").joinpath("queries.sql").read_text()
    names = re.findall(r"^-- name: (\w+)\n(.*)$", script, re.MULTILINE)
    assert {name for name, _ in names} == {*ALL}
    assert len(names) == len(ALL)
    for name, following in names:
        assert following.startswith("-- "), f"{name} has no explanation"


def test_the_claim_is_in_the_order_of_the_pending_index() -> None:
    assert "ORDER BY send_after, id" in QUERIES.claim
    assert "FOR UPDATE SKIP LOCKED" in QUERIES.claim


@pytest.mark.parametrize(
    "name",
    ["claim", "look", "late", "claimable_keys", "claimable", "delete", "mark_sent", "back_off", "park"],
)
def test_nothing_on_the_way_of_a_message_counts_rows(name: str) -> None:
    of_a_page = re.sub(r"count[(][*][)] FROM (discovered|page)", "", ALL[name])
    assert "count(" not in of_a_page.lower()


def test_a_batch_ends_in_one_script_whose_last_word_is_the_commit() -> None:
    script = QUERIES.conclusion([(7, 1), (8, 22), (7, 4)], [(7, 333)])
    assert re.sub(r"\s+", " ", script) == (
        """DELETE FROM "shop"."My table" WHERE id = ANY ('{1,4}'::bigint[]) AND tableoid = '7'::oid; """
        """DELETE FROM "shop"."My table" WHERE id = ANY ('{22}'::bigint[]) AND tableoid = '8'::oid; """
        """UPDATE "shop"."My table" SET sent_at = pg_catalog.statement_timestamp(), last_error = NULL """
        """WHERE id = ANY ('{333}'::bigint[]) AND tableoid = '7'::oid; COMMIT"""
    )


def test_a_batch_in_which_nothing_was_sent_only_commits() -> None:
    assert QUERIES.conclusion([], []) == "COMMIT"
