"""Which messages are meant, as SQL."""

import re
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox.testing.routing import matches
from outbox_cli.message_query import Query, State, matching

_WORDS = st.sampled_from(["a", "b", "user"])
_KEYS = st.lists(_WORDS, min_size=1, max_size=5).map(".".join)
_PATTERNS = st.lists(_WORDS | st.sampled_from(["*", "#"]), min_size=1, max_size=5).map(".".join)


@given(_PATTERNS, _KEYS)
def test_a_pattern_matches_what_a_binding_would(pattern: str, key: str) -> None:
    assert bool(re.search(matching(pattern), f".{key}")) == matches(pattern, key)


@pytest.mark.parametrize(
    ("pattern", "key", "is_meant"),
    [
        ("user.cr*", "user.created", True),
        ("user.cr*", "user.cr.eated", False),
        ("*ted", "created", True),
        ("user+1", "user+1", True),
        ("user.", "user.", True),
        ("(a|b)", "a", False),
    ],
)
def test_a_star_inside_a_word_is_any_text(pattern: str, key: str, is_meant: bool) -> None:
    assert bool(re.search(matching(pattern), f".{key}")) == is_meant


def test_parameters_are_numbered_as_they_are_given() -> None:
    where, arguments = Query((State.SENT,), routing_key="a", newer_than=timedelta(minutes=5)).where()
    assert where == (
        "((sent_at IS NOT NULL)) AND ('.' || routing_key::text ~ $1::text) "
        "AND (created_at >= pg_catalog.now() - $2::interval)"
    )
    assert arguments == [r"^\.a$", timedelta(minutes=5)]


def test_without_a_wish_all_that_is_not_sent_is_meant() -> None:
    where, arguments = Query().where()
    assert "sent_at IS NOT NULL" not in where
    assert arguments == []
