"""Topic rules, as RabbitMQ has them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox.testing.routing import matches


@pytest.mark.parametrize(
    ("binding_key", "routing_key", "expected"),
    [
        ("user.created", "user.created", True),
        ("user.created", "user.deleted", False),
        ("user.created", "user", False),
        ("user", "user.created", False),
        ("user.*", "user.created", True),
        ("user.*", "user", False),
        ("user.*", "user.created.eu", False),
        ("*.created", "user.created", True),
        ("*", "user.created", False),
        ("*.*", "user.created", True),
        ("user.*.eu", "user.created.eu", True),
        ("#", "user.created", True),
        ("#", "", True),
        ("*", "", False),
        ("user.#", "user", True),
        ("user.#", "user.created.eu", True),
        ("user.#", "users.created", False),
        ("#.eu", "eu", True),
        ("#.eu", "user.created.eu", True),
        ("#.eu", "user.created.us", False),
        ("user.#.eu", "user.eu", True),
        ("user.#.eu", "user.a.b.eu", True),
        ("user.#.eu", "user.eu.us", False),
        ("#.a.#", "b.a.c", True),
        ("#.a.#", "b.c", False),
        ("#.*", "a", True),
        ("#.#", "a.b", True),
        ("#.*.#", "", False),
        ("a.*.b", "a..b", True),
        ("a.b", "a..b", False),
        ("u*", "user", False),
        ("us#", "user", False),
        ("user+created", "user.created", False),
    ],
)
def test_a_topic(binding_key: str, routing_key: str, expected: bool) -> None:
    assert matches(binding_key, routing_key) is expected


def expression(binding_key: str) -> str:
    """The same rules, written another way: words that each end with a dot."""
    parts = {"*": r"[^.]*\.", "#": r"(?:[^.]*\.)*"}
    return "".join(parts.get(part, re.escape(part) + r"\.") for part in binding_key.split("."))


@given(
    st.lists(st.sampled_from(["a", "b", "*", "#"]), min_size=1, max_size=5).map(".".join),
    st.lists(st.sampled_from(["a", "b", ""]), min_size=1, max_size=5).map(".".join).filter(bool),
)
def test_any_topic_is_what_its_regular_expression_says(binding_key: str, routing_key: str) -> None:
    expected = re.fullmatch(expression(binding_key), f"{routing_key}.") is not None
    assert matches(binding_key, routing_key) is expected
