from typing import Any

import pytest

from outbox import wire
from outbox_core.publisher import Message
from outbox_worker.delivery import attempt_of, deadline_of, delivery_of, routing_key_of


def message(**headers: Any) -> Message:
    named = {getattr(wire, name): value for name, value in headers.items()}
    return Message("queue", b"body", message_id="id", content_type="text/plain", headers=named)


def test_a_delivery_says_what_the_message_does() -> None:
    received = message(ROUTING_KEY="user.created", TRACKING_IDS='["a", "b"]')
    delivery = delivery_of(received, "q", 3, raw="raw", connection="c", session="s")
    assert (delivery.routing_key, delivery.body) == ("user.created", b"body")
    assert delivery.content_type == "text/plain"
    assert (delivery.tracking_ids, delivery.queue_name, delivery.attempt_count) == (["a", "b"], "q", 3)
    assert (delivery.message, delivery.message_id, delivery.headers) == ("raw", "id", received.headers)
    assert (delivery.connection, delivery.session) == ("c", "s")


@pytest.mark.parametrize(("header", "expected"), [("a.b", "a.b"), (None, "queue"), (7, "queue")])
def test_the_routing_key_is_the_original_one(header: Any, expected: str) -> None:
    assert routing_key_of(message(ROUTING_KEY=header)) == expected


@pytest.mark.parametrize(
    ("header", "expected"), [(1, 1), (4, 4), (None, 1), (0, 1), (-3, 1), ("2", 1), (True, 1), (2.0, 1)]
)
def test_the_attempt_is_ours_or_the_first(header: Any, expected: int) -> None:
    assert attempt_of(message(ATTEMPT=header)) == expected


@pytest.mark.parametrize("text", [None, 5, "", "no json", "{}", "[" * 100_000])
def test_tracking_ids_that_cannot_be_read_are_none(text: Any) -> None:
    assert delivery_of(message(TRACKING_IDS=text), "q", 1).tracking_ids == []


def test_a_deadline_is_the_headers_or_follows_from_the_expiration() -> None:
    assert deadline_of(message(DEADLINE=5000), 1000) == 5000
    assert deadline_of(Message("k", b"", expiration_ms=250), 1000) == 1250
    assert deadline_of(Message("k", b"", expiration_ms=250, headers={wire.DEADLINE: 7}), 1000) == 7
    assert deadline_of(message(), 1000) is None
    assert deadline_of(message(DEADLINE="soon"), 1000) is None
