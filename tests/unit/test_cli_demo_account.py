from dataclasses import replace
from typing import Any

import pytest

from outbox_cli.demo.account import Account, Line, discrepancies
from outbox_cli.demo.story import Pace, expectations

EXPECTED = expectations(Pace(40, per_second=5, remind_after=10))


def line(key: str, listener: str, count: int, retries: int = 0, dead_letters: int = 0) -> Line:
    return Line(
        routing_key=key,
        emitted=count,
        listener=listener,
        handled=count,
        retries=retries,
        dead_letters=dead_letters,
        redriven=dead_letters,
        left_over=0,
    )


RIGHT = Account(
    begun=40,
    rolled_back=20,
    placed=20,
    strangers=0,
    waiting=0,
    lines=(
        line("order.placed", "book", 20),
        line("order.booked", "send-mail", 20, retries=40),
        line("card.charge", "charge-card", 4, retries=4, dead_letters=4),
        line("order.reminder", "remind", 20),
    ),
)


def test_what_is_right_adds_up() -> None:
    assert list(discrepancies(RIGHT, EXPECTED)) == []


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (replace(RIGHT, rolled_back=19), "of 40 orders 20 were placed and 19 rolled back"),
        (replace(RIGHT, strangers=1), "orders that were rolled back were heard of 1 times"),
        (replace(RIGHT, waiting=2), "2 messages still wait for a retry"),
    ],
)
def test_what_is_wrong_with_all_of_it_is_said(wrong: Account, said: str) -> None:
    assert list(discrepancies(wrong, EXPECTED)) == [said]


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("handled", 21, "order.placed: handled is 21, and 20 would be right"),
        ("handled", 19, "order.placed: handled is 19, and 20 would be right"),
        ("retries", 1, "order.placed: retries is 1, and 0 would be right"),
        ("redriven", 1, "order.placed: redriven is 1, and 0 would be right"),
        ("left_over", 3, "order.placed: left over is 3, and 0 would be right"),
    ],
)
def test_what_is_wrong_with_a_kind_of_message_is_said(field: str, value: int, said: str) -> None:
    first, *others = RIGHT.lines
    changes: dict[str, Any] = {field: value}
    wrong = replace(RIGHT, lines=(replace(first, **changes), *others))
    assert list(discrepancies(wrong, EXPECTED)) == [said]
