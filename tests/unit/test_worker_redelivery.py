from datetime import UTC, datetime
from typing import Any

import pytest

from outbox import wire
from outbox_core.error_text import text_of
from outbox_core.publisher import Message, RareProperties
from outbox_worker.redelivery import Failure, dead_letter, retry_message

AT = datetime(2026, 1, 2, 3, 4, 5, 678_900, tzinfo=UTC)
TIME = "2026-01-02T03:04:05.678Z"
BROKERS: dict[str, Any] = {
    "x-death": [{"count": 1}],
    "x-first-death-queue": "q",
    "x-first-death-reason": "expired",
    "x-last-death-exchange": "e",
    "x-delivery-count": 3,
    "x-acquired-count": 3,
    "CC": ["elsewhere"],
}


def failed(attempt: int = 1, error: BaseException | None = None, deadline_ms: int | None = None) -> Failure:
    return Failure(error or ValueError("broken"), attempt, AT, deadline_ms)


def fail(error: Exception) -> None:
    raise error


def raised(error: Exception) -> Exception:
    try:
        fail(error)
    except Exception as caught:
        return caught
    raise AssertionError


def sent(**headers: Any) -> Message:
    return Message(
        "user.created",
        b"body",
        message_id="id",
        timestamp=7,
        content_type="text/plain",
        headers={"own": 1, **headers},
        expiration_ms=500,
        rare=RareProperties(correlation_id="c"),
    )


def test_a_retry_is_the_message_with_its_next_attempt_addressed_to_the_queue() -> None:
    assert retry_message(sent(), "q", failed()) == Message(
        "q",
        b"body",
        message_id="id",
        timestamp=7,
        content_type="text/plain",
        headers={
            "own": 1,
            wire.ATTEMPT: 2,
            wire.ROUTING_KEY: "user.created",
            wire.FIRST_FAILED_AT: TIME,
        },
        rare=RareProperties(correlation_id="c"),
    )


def test_later_retries_keep_the_key_the_first_failure_and_the_deadline() -> None:
    known = {wire.ROUTING_KEY: "original", wire.FIRST_FAILED_AT: "before", wire.ATTEMPT: 2}
    headers = retry_message(sent(**known), "q", failed(2, deadline_ms=99)).headers
    assert headers[wire.ROUTING_KEY] == "original"
    assert headers[wire.FIRST_FAILED_AT] == "before"
    assert headers[wire.ATTEMPT] == 3
    assert headers[wire.DEADLINE] == 99


@pytest.mark.parametrize("make", [retry_message, dead_letter])
def test_nothing_of_the_brokers_is_sent_again(make: Any) -> None:
    headers = make(sent(**BROKERS), "q", failed()).headers
    assert headers["own"] == 1
    assert not BROKERS.keys() & headers.keys()


def test_a_dead_letter_says_what_is_known_and_begins_anew_when_it_is_moved_back() -> None:
    error = raised(ValueError("broken"))
    letter = dead_letter(sent(**{wire.DEADLINE: 5, wire.FIRST_FAILED_AT: "before"}), "q", failed(3, error))
    trace = letter.headers[wire.TRACEBACK]
    assert {name: value for name, value in letter.headers.items() if name != wire.TRACEBACK} == {
        "own": 1,
        wire.ATTEMPT: 1,
        wire.ATTEMPTS: 3,
        wire.ROUTING_KEY: "user.created",
        wire.QUEUE: "q",
        wire.ERROR: "broken",
        wire.ERROR_TYPE: "builtins.ValueError",
        wire.FIRST_FAILED_AT: "before",
        wire.FAILED_AT: TIME,
    }
    assert isinstance(trace, str)
    assert trace.endswith("ValueError: broken\n")
    assert "in fail" in trace
    assert letter.expiration_ms is None


def test_a_retry_of_a_dead_letter_that_was_moved_back_tells_nothing_of_its_first_life() -> None:
    first = dead_letter(sent(), "q", failed(3, raised(ValueError("broken"))))
    headers = retry_message(first, "q", failed(1)).headers
    assert set(headers) == {"own", wire.ATTEMPT, wire.ROUTING_KEY, wire.FIRST_FAILED_AT}
    assert headers[wire.FIRST_FAILED_AT] == TIME


def deep(depth: int) -> None:
    if depth:
        deep(depth - 1)
    raise ValueError("ü" * 10_000)


def test_errors_and_tracebacks_are_bounded_in_bytes() -> None:
    try:
        deep(100)
    except ValueError as error:
        headers = dead_letter(sent(), "q", failed(1, error)).headers
        short = dead_letter(sent(), "q", failed(1, error), short=True).headers
    assert len(str(headers[wire.ERROR]).encode()) <= 1024 + 3
    assert len(str(headers[wire.TRACEBACK]).encode()) <= 4096 + 3
    assert len(str(short[wire.ERROR]).encode()) <= 200 + 3
    assert wire.TRACEBACK not in short


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_an_error_that_cannot_be_read_does_not_keep_the_message() -> None:
    headers = dead_letter(sent(), "q", failed(1, Unspeakable())).headers
    assert headers[wire.ERROR] == "(its text cannot be read: RuntimeError)"
    assert str(headers[wire.ERROR_TYPE]).endswith(".Unspeakable")
    assert isinstance(headers[wire.TRACEBACK], str)


def test_what_is_no_utf8_is_written_out() -> None:
    headers = dead_letter(sent(), "q", failed(1, ValueError("\ud800"))).headers
    assert headers[wire.ERROR] == "\\ud800"


def test_passwords_are_masked() -> None:
    error = raised(ValueError("cannot reach amqp://shop:s3cret@broker"))
    headers = dead_letter(sent(), "q", failed(1, error)).headers
    assert "s3cret" not in str(headers)
    assert text_of(error) == "cannot reach amqp://shop:***@broker"


class WithHugeText(Exception):
    def __str__(self) -> str:
        return "x" * 20_000_000


class WithoutText(Exception):
    def __str__(self) -> str:
        raise KeyError("no text")


@pytest.mark.parametrize("error", [WithHugeText(), WithoutText(), ValueError("é" * 10_000_000)])
def test_any_error_fits_into_a_dead_letter(error: Exception) -> None:
    headers = dead_letter(sent(), "q", failed(1, raised(error))).headers
    assert sum(len(str(value).encode()) for value in headers.values()) < 8_000
