import enum
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox import OutboxMessage
from outbox.history import tracking
from outbox.message import MessageRow
from outbox.message import row_of as row_with_id


class Key(str, enum.Enum):  # noqa: UP042 -- what applications have
    """As applications wrote it before `StrEnum`: `str()` of it is its name."""

    A = "the.value"


class Text(enum.Enum):
    NUL = "\0"


@dataclass
class Point:
    x: Any


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def row_of(message: OutboxMessage) -> MessageRow:
    return row_with_id(message, "an-id")


def test_the_last_tracking_id_is_the_messages_own() -> None:
    with tracking(['from "elsewhere"']):
        row = row_of(OutboxMessage("a", 1))
    assert json.loads(row.tracking_ids) == ['from "elsewhere"', "an-id"]
    assert json.loads(row_of(OutboxMessage("a", 1)).tracking_ids) == ["an-id"]


def test_a_long_history_keeps_its_first_and_its_last_ids() -> None:
    history = [str(number) for number in range(500)]
    with tracking(history):
        ids = json.loads(row_of(OutboxMessage("a", 1)).tracking_ids)
    assert ids == ["0", *history[-98:], "an-id"]
    assert len(ids) == 100
    with tracking(ids[:99]):
        assert json.loads(row_of(OutboxMessage("a", 1)).tracking_ids) == [*ids[:99], "an-id"]


@pytest.mark.parametrize(
    ("eta", "due_at", "due_in"),
    [
        (None, None, None),
        (datetime(1970, 1, 1, 0, 1, tzinfo=UTC), 60.0, None),
        (timedelta(minutes=1), None, 60.0),
        (1500, None, 1.5),
        (0, None, 0.0),
        (-5, None, -0.005),
        (datetime.max.replace(tzinfo=UTC), 253_402_300_799.0, None),
        (datetime.max.replace(tzinfo=timezone(timedelta(hours=-12))), 253_402_300_799.0, None),
        (datetime.min.replace(tzinfo=timezone(timedelta(hours=12))), -62_135_596_800.0, None),
        (timedelta(days=2_500_000), None, 216_000_000_000.0),
    ],
)
def test_eta_is_absolute_or_relative(eta: Any, due_at: float | None, due_in: float | None) -> None:
    row = row_of(OutboxMessage("a", 1, eta=eta))
    assert (row.due_at, row.due_in) == (due_at, due_in)


@pytest.mark.parametrize(
    ("expiration", "seconds"),
    [
        (None, None),
        (0.001, 0.001),
        (1.5, 1.5),
        (timedelta(hours=1), 3600),
        (timedelta(days=3650), 315_360_000),
    ],
)
def test_expiration_is_in_seconds(expiration: Any, seconds: float | None) -> None:
    assert row_of(OutboxMessage("a", 1, expiration=expiration)).expiration == seconds


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1))
def test_any_routing_key_of_up_to_255_bytes_is_taken(key: str) -> None:
    if len(key.encode()) <= 255:
        assert row_of(OutboxMessage(key, 1)).routing_key == key
    else:
        with pytest.raises(ValueError, match="more than the 255 of AMQP"):
            row_of(OutboxMessage(key, 1))


@pytest.mark.parametrize(
    ("fields", "error", "says"),
    [
        ({"routing_key": ""}, ValueError, "routing_key must not be empty"),
        ({"routing_key": "é" * 128}, ValueError, "routing_key has 256 bytes, more than the 255 of AMQP"),
        ({"routing_key": None}, TypeError, "routing_key must be a str, got NoneType"),
        ({"routing_key": "a\0b"}, ValueError, "routing_key must not contain a NUL"),
        ({"routing_key": "\ud800"}, ValueError, "routing_key: a lone surrogate"),
        ({"expiration": -1}, ValueError, "expiration must not be negative, got -1"),
        ({"expiration": timedelta(seconds=-1)}, ValueError, "expiration must not be negative"),
        ({"expiration": float("nan")}, ValueError, "expiration must be finite"),
        ({"expiration": 0}, ValueError, "expiration must be at least 1 ms, or the message is never sent"),
        ({"expiration": timedelta(microseconds=1)}, ValueError, "expiration must be at least 1 ms"),
        ({"expiration": timedelta(days=3651)}, ValueError, "expiration must be at most 3650 days, got "),
        ({"expiration": 1e300}, ValueError, "expiration must be at most 3650 days, got 1e.300"),
        ({"expiration": 10**400}, ValueError, "expiration must be at most 3650 days, got 10000"),
        ({"expiration": timedelta.max}, ValueError, "expiration must be at most 3650 days"),
        ({"expiration": "5"}, TypeError, "expiration must be seconds or a timedelta, got str"),
        ({"expiration": True}, TypeError, "expiration must be seconds or a timedelta, got bool"),
        ({"eta": "tomorrow"}, TypeError, "eta must be a datetime, a timedelta or milliseconds, got str"),
        ({"eta": float("inf")}, ValueError, "eta must be finite"),
        ({"eta": timedelta.max}, ValueError, "eta must be at most 2500000 days from now; give a datetime"),
        ({"eta": timedelta.min}, ValueError, "eta must be at most 700000 days ago"),
        ({"eta": 10**400}, ValueError, "eta must be at most 2500000 days from now"),
        ({"eta": 1e300}, ValueError, "eta must be at most 2500000 days from now"),
        ({"content_type": ""}, ValueError, "content_type must not be empty"),
        ({"ordering_key": ""}, ValueError, "ordering_key must not be empty"),
        ({"timer_id": 5}, TypeError, "timer_id must be a str, got int"),
        ({"headers": {"": 1}}, ValueError, "header name must not be empty"),
        ({"headers": {1: 1}}, TypeError, "header name must be a str"),
        (
            {"ordering_key": "é" * 1001},
            ValueError,
            "ordering_key has 2002 bytes, more than the 2000 that an index",
        ),
        ({"timer_id": "x" * 2001}, ValueError, "timer_id has 2001 bytes, more than the 2000 that an index"),
        ({"timer_id": "\0"}, ValueError, "timer_id must not contain a NUL"),
        ({"headers": {"é" * 128: 1}}, ValueError, "header name has 256 bytes, more than the 255 of AMQP"),
        (
            {"headers": {"a": {"é" * 128: 1}}},
            ValueError,
            "header 'a': the name .* has 256 bytes, more than",
        ),
        (
            {"headers": {"a": [2**63]}},
            ValueError,
            "header 'a': 9223372036854775808 has more than the 64 bits",
        ),
        (
            {"headers": {"a": {"b": -(2**63) - 1}}},
            ValueError,
            "more than the 64 bits of AMQP; pass it as text",
        ),
        ({"headers": {"a": 1e30}}, ValueError, "header 'a': 1e.30 has more than the 64 bits of AMQP"),
        ({"headers": {"a": -1e30}}, ValueError, "header 'a': -1e.30 has more than the 64 bits of AMQP"),
        ({"headers": {"a": float("nan")}}, ValueError, "the headers cannot be written as JSON"),
        ({"headers": {"a": float("inf")}}, ValueError, "the headers cannot be written as JSON"),
        ({"headers": {"a": {"b": "\0"}}}, ValueError, "header 'a': it must not contain a NUL"),
        ({"headers": {"a": {"\0": 1}}}, ValueError, "header 'a': the name .* must not contain a NUL"),
        ({"headers": {"a": Text.NUL}}, ValueError, "header 'a': it must not contain a NUL"),
        ({"headers": {"a": Point("\0")}}, ValueError, "header 'a': it must not contain a NUL"),
        ({"headers": {"a": Point(1e30)}}, ValueError, "header 'a': 1e.30 has more than the 64 bits"),
        ({"headers": {"a": nested(100)}}, ValueError, "header 'a': it is nested more than 100 deep"),
        ({"headers": {"a": nested(100_000)}}, ValueError, "the headers cannot be written as JSON"),
        (
            {"headers": {"a": "x" * 114_688}},
            ValueError,
            "more than max_headers_size .114688.; move some of them",
        ),
        ({"headers": {"a": [None] * 120_000}}, ValueError, "more than max_headers_size"),
        ({"headers": {"a": object()}}, TypeError, "the headers cannot be written as JSON"),
        ({"headers": {"a": "\ud800"}}, ValueError, "headers: a lone surrogate"),
        ({"headers": "text"}, TypeError, "headers must be a mapping, got str"),
    ],
)
def test_what_is_wrong_with_a_message_is_said(
    fields: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        row_of(OutboxMessage(**{"routing_key": "a", "body": 1, **fields}))


def test_text_of_a_subclass_is_stored_as_its_value() -> None:
    class Word(enum.StrEnum):
        JSON = "application/json"

    class Quoted(str):
        def __str__(self) -> str:
            return f"<{self}>"

    row = row_of(
        OutboxMessage(
            Key.A,
            Key.A,
            headers={Key.A: Key.A},
            ordering_key=Key.A,
            timer_id=Quoted("the.value"),
            content_type=Word.JSON,
        )
    )
    texts = (row.routing_key, row.ordering_key, row.timer_id, row.content_type)
    assert texts == ("the.value", "the.value", "the.value", "application/json")
    assert {type(text) for text in texts} == {str}
    assert (row.headers, row.body) == ('{"the.value":"the.value"}', b'"the.value"')


@pytest.mark.parametrize("history", [["\0"], ["\ud800"], ["x" * 120_000]], ids=["NUL", "surrogate", "long"])
def test_tracking_ids_that_cannot_be_stored_or_sent_are_refused(history: list[str]) -> None:
    with tracking(history), pytest.raises(ValueError, match="tracking ids"):
        row_of(OutboxMessage("a", 1))


def test_the_largest_of_everything_is_taken() -> None:
    row = row_of(
        OutboxMessage(
            "k" * 255,
            1,
            ordering_key="o" * 2000,
            timer_id="t" * 2000,
            content_type="c" * 255,
            headers={"h" * 255: nested(99), "n": [2**63 - 1, -(2**63), 9e18, 5e-324], "x": "x" * 100_000},
        )
    )
    assert len(row.timer_id or "") == 2000
