"""Whose turn it is among the keys of several namespaces."""

import pytest

from outbox_operator.reconciling.turns import Turns


def turns(most: int, *keys: str) -> Turns[str]:
    """Keys whose first letter is their namespace."""
    found: Turns[str] = Turns(lambda key: key[0], most)
    for key in keys:
        found.add(key)
    return found


def taken(of: Turns[str]) -> str:
    """All that can be taken while nothing is done."""
    keys = []
    while key := of.take():
        keys.append(key)
    return " ".join(keys)


@pytest.mark.parametrize(
    ("most", "keys", "expected"),
    [
        (9, "a1 a2 a3", "a1 a2 a3"),
        (9, "a1 a2 a3 b1 b2 c1", "a1 b1 c1 a2 b2 a3"),
        (2, "a1 a2 a3 a4 b1", "a1 b1 a2"),
        (1, "a1 a2 a3", "a1"),
    ],
)
def test_namespaces_take_turns_and_hold_no_more_than_their_share(most: int, keys: str, expected: str) -> None:
    assert taken(turns(most, *keys.split())) == expected


def test_a_namespace_gets_its_share_again_when_one_of_its_keys_is_done() -> None:
    of = turns(1, "a1", "a2")
    assert taken(of) == "a1"
    of.done("a1")
    assert taken(of) == "a2"


def test_one_key_waits_behind_one_of_each_namespace_however_many_there_are() -> None:
    of = turns(100, *(f"a{number}" for number in range(1000)))
    of.add("b")
    assert [of.take(), of.take()] == ["a0", "b"]
