import enum
import json
import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from outbox.body import BINARY, JSON, encode_body


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class User(BaseModel):
    id: int
    joined: date


@dataclass
class Order:
    id: uuid.UUID
    buyer: User
    colours: list[Colour]


ID = uuid.UUID(int=1)
TODAY = date(2030, 1, 2)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(json_values)
def test_anything_json_can_carry_comes_back(value: Any) -> None:
    encoded, content_type = encode_body(value)
    assert json.loads(encoded) == value
    assert content_type == JSON


@given(st.binary())
def test_bytes_stay_as_they_are(value: bytes) -> None:
    assert encode_body(value) == (value, BINARY)
    assert encode_body(bytearray(value)) == (value, BINARY)
    assert encode_body(memoryview(value)) == (value, BINARY)


@given(st.text())
def test_a_str_with_a_content_type_of_its_own_is_sent_as_text(value: str) -> None:
    assert encode_body(value, "text/plain") == (value.encode(), "text/plain")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("text", "text"),
        (ID, str(ID)),
        (datetime(2030, 1, 2, 3, 4, tzinfo=UTC), "2030-01-02T03:04:00+00:00"),
        (TODAY, "2030-01-02"),
        (time(3, 4), "03:04:00"),
        (timedelta(minutes=1), 60.0),
        (Decimal("0.10"), "0.10"),
        (Colour.RED, "red"),
        (Level.HIGH, 3),
        ((1, 2), [1, 2]),
        ({1}, [1]),
        (MappingProxyType({"a": 1}), {"a": 1}),
        (User(id=1, joined=TODAY), {"id": 1, "joined": "2030-01-02"}),
        (Order(ID, User(id=2, joined=TODAY), [Colour.RED]),
         {"id": str(ID), "buyer": {"id": 2, "joined": "2030-01-02"}, "colours": ["red"]}),
        ([User(id=1, joined=TODAY)], [{"id": 1, "joined": "2030-01-02"}]),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_python_values_have_a_json_form(body: Any, expected: Any) -> None:
    encoded, content_type = encode_body(body)
    assert json.loads(encoded) == expected
    assert content_type == JSON


@pytest.mark.parametrize(
    ("body", "content_type", "expected"),
    [
        ({"a": 1}, "application/vnd.shop.order+json", b'{"a":1}'),
        ("a", "application/json; charset=utf-8", b'"a"'),
        ("a", "application/xml", b"a"),
        (b"a", "application/json", b"a"),
        (User(id=1, joined=TODAY), "application/user+json", b'{"id":1,"joined":"2030-01-02"}'),
    ],
)
def test_a_given_content_type_is_kept(body: Any, content_type: str, expected: bytes) -> None:
    assert encode_body(body, content_type) == (expected, content_type)


def recursion() -> list[Any]:
    circle: list[Any] = []
    circle.append(circle)
    return circle


@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        (object(), TypeError, "the body cannot be written as JSON: builtins.object is not a JSON value"),
        ({"file": b"raw"}, TypeError, "builtins.bytes is not a JSON value"),
        ({(1, 2): 3}, TypeError, "keys must be str"),
        (float("nan"), ValueError, "the body cannot be written as JSON: Out of range float"),
        (recursion(), ValueError, "Circular reference"),
        ("\ud800", ValueError, "body: a lone surrogate at 1"),
        (User, TypeError, "is not a JSON value"),
    ],
)
def test_a_body_that_cannot_be_encoded_says_why(body: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        encode_body(body)
