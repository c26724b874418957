"""Messages put together from frames: each whole, and nothing taken that is not theirs."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox_core.contents import DELIVER, RETURN, Contents
from outbox_core.inflow import BODY, HEADER, METHOD

Taken = list[tuple[bytes, bytes, bytes]]
CONSUME_OK = struct.pack(">HH", 60, 21)


def header(size: int) -> bytes:
    return struct.pack(">HHQH", 60, 0, size, 0)


@pytest.fixture
def taken() -> Taken:
    return []


@pytest.fixture
def contents(taken: Taken) -> Contents:
    return Contents(DELIVER, lambda *content: taken.append(content))


@given(bodies=st.lists(st.lists(st.binary(min_size=1, max_size=9), max_size=4), max_size=5))
def test_each_message_is_handed_out_whole_with_its_last_frame(bodies: list[list[bytes]]) -> None:
    taken: Taken = []
    contents = Contents(DELIVER, lambda *content: taken.append(content))
    for number, parts in enumerate(bodies):
        size = sum(map(len, parts))
        assert contents.take(METHOD, DELIVER + b"%d" % number)
        assert len(taken) == number
        assert contents.take(HEADER, header(size))
        for part in parts:
            assert len(taken) == number
            assert contents.take(BODY, part)

    expected = [
        (DELIVER + b"%d" % number, header(sum(map(len, parts))), b"".join(parts))
        for number, parts in enumerate(bodies)
    ]
    assert taken == expected


def test_what_is_no_delivery_is_left_to_others(contents: Contents, taken: Taken) -> None:
    for kind, payload in [
        (METHOD, CONSUME_OK),
        (METHOD, RETURN),
        (HEADER, header(1)),
        (BODY, b"x"),
        (8, b""),
    ]:
        assert not contents.take(kind, payload)
    assert taken == []


def test_after_a_message_the_content_of_something_else_is_left_to_others(
    contents: Contents, taken: Taken
) -> None:
    contents.take(METHOD, DELIVER)
    contents.take(HEADER, header(0))
    assert len(taken) == 1

    assert not contents.take(METHOD, RETURN)
    assert not contents.take(HEADER, header(1))
    assert not contents.take(BODY, b"x")
    assert len(taken) == 1
