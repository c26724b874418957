import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox import OutboxMessage
from outbox.history import tracking
from outbox.message import MessageRow
from outbox.message import row_of as row_with_id


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
    ],
)
def test_eta_is_absolute_or_relative(eta: Any, due_at: float | None, due_in: float | None) -> None:
    row = row_of(OutboxMessage("a", 1, eta=eta))
    assert (row.due_at, row.due_in) == (due_at, due_in)


@pytest.mark.parametrize(
    ("expiration", "seconds"), [(None, None), (0, 0), (1.5, 1.5), (timedelta(hours=1), 3600)]
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
        ({"expiration": "5"}, TypeError, "expiration must be seconds or a timedelta, got str"),
        ({"expiration": True}, TypeError, "expiration must be seconds or a timedelta, got bool"),
        ({"eta": "tomorrow"}, TypeError, "eta must be a datetime, a timedelta or milliseconds, got str"),
        ({"eta": float("inf")}, ValueError, "eta must be finite"),
        ({"content_type": ""}, ValueError, "content_type must not be empty"),
        ({"ordering_key": ""}, ValueError, "ordering_key must not be empty"),
        ({"timer_id": 5}, TypeError, "timer_id must be a str, got int"),
        ({"headers": {"": 1}}, ValueError, "header name must not be empty"),
        ({"headers": {1: 1}}, TypeError, "header name must be a str"),
        ({"headers": {"a": [2**63]}}, ValueError, "AMQP has integers of 64 bits"),
        ({"headers": {"a": {"b": "\0"}}}, ValueError, "headers must not contain a NUL"),
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
