from typing import Any

import pytest

from outbox_core.publisher import Message, Unencodable
from outbox_relay.wire import message_of

ROW: dict[str, Any] = {
    "id": 7,
    "message_id": "2f1c6a1e-0000-4000-8000-000000000000",
    "routing_key": "user.created",
    "content_type": "application/json",
    "headers": None,
    "tracking_ids": '["2f1c6a1e-0000-4000-8000-000000000000"]',
    "ordering_key": None,
    "attempts": 0,
    "timestamp": 1_700_000_000,
    "age": 0.1,
    "remaining": None,
    "clock": 1_700_000_000.1,
}

OURS = {
    "x-outbox-tracking-ids": '["2f1c6a1e-0000-4000-8000-000000000000"]',
    "x-outbox-routing-key": "user.created",
    "x-outbox-attempt": 1,
}


def message(default_expiration: float | None = None, **columns: Any) -> Message:
    found = message_of({**ROW, **columns}, b'{"id": 1}', default_expiration)
    assert isinstance(found, Message)
    return found


def test_a_row_becomes_a_message() -> None:
    assert message() == Message(
        routing_key="user.created",
        body=b'{"id": 1}',
        message_id="2f1c6a1e-0000-4000-8000-000000000000",
        timestamp=1_700_000_000,
        content_type="application/json",
        headers=OURS,
        expiration_ms=None,
    )


def test_the_attempt_is_the_listeners_and_not_the_relays() -> None:
    assert message(attempts=5).headers["x-outbox-attempt"] == 1


def test_the_applications_headers_go_along_and_cannot_replace_ours() -> None:
    headers = message(headers='{"tenant": "ü", "x-outbox-attempt": 9, "deep": {"a": [1, null]}}').headers
    assert headers == {**OURS, "tenant": "ü", "deep": {"a": [1, None]}}


def test_no_content_type_is_json_and_any_other_stays() -> None:
    assert message(content_type=None).content_type == "application/json"
    assert message(content_type="image/png").content_type == "image/png"
    assert message(content_type="").content_type == ""


@pytest.mark.parametrize(
    ("remaining", "default", "milliseconds"),
    [
        (None, None, None),
        (None, 1.5, 1500),
        (None, 0, 0),
        (2.0, None, 2000),
        (2.0, 60, 2000),
        (0.0004, None, 0),
        (0.0016, None, 2),
        (-1.0, None, 0),
        (4_294_967.295, None, 4_294_967_295),
        (4_294_967.296, None, None),
        (None, 315_360_000, None),
        (float("inf"), None, None),
        (float("inf"), 60, None),
        (float("nan"), 60, None),
    ],
)
def test_an_expiration_is_what_remains_of_it_or_the_relays(
    remaining: float | None, default: float | None, milliseconds: int | None
) -> None:
    assert message(default, remaining=remaining).expiration_ms == milliseconds


@pytest.mark.parametrize(
    ("remaining", "default", "deadline"),
    [
        (None, None, None),
        (None, 1.5, 1_700_000_001_600),
        (2.0, None, 1_700_000_002_100),
        (2.0, 60, 1_700_000_002_100),
        (-1.0, None, 1_699_999_999_100),
        (None, 315_360_000, 2_015_360_000_100),
    ],
)
def test_the_moment_at_which_an_expiration_ends_goes_along(
    remaining: float | None, default: float | None, deadline: int | None
) -> None:
    assert message(default, remaining=remaining).headers.get("x-outbox-deadline") == deadline


def test_the_deadline_of_a_message_that_was_passed_on_is_left_behind() -> None:
    passed_on = '{"tenant": "a", "x-outbox-deadline": 1}'
    assert message(headers=passed_on).headers == {**OURS, "tenant": "a"}
    assert message(headers=passed_on, remaining=1.0).headers["x-outbox-deadline"] == 1_700_000_001_100


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ("[1, 2]", "headers must be a JSON object, not [1, 2]"),
        ("3", "headers must be a JSON object, not 3"),
        ("null", "headers must be a JSON object, not null"),
        ('"' + "x" * 100 + '"', 'headers must be a JSON object, not "' + "x" * 39),
        ('{"n": 1' + "0" * 5000 + "}", "headers cannot be read: Exceeds the limit (4300 digits)"),
        ('{"n": ' + "[" * 100_000 + "]" * 100_000 + "}", "headers cannot be read: nested too deeply"),
    ],
    ids=["array", "number", "null", "long text", "huge number", "deep nesting"],
)
def test_headers_that_no_message_can_have_are_told_and_not_raised(headers: str, reason: str) -> None:
    found = message_of({**ROW, "headers": headers}, b"", None)
    assert isinstance(found, Unencodable)
    assert found.reason.startswith(reason)
