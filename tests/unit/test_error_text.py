"""What is said of an exception has a bounded size, no passwords, and never fails."""

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from outbox_core.error_text import text_of, traceback_of
from outbox_core.masking import LONGEST

HUGE = 20_000_000


class WithoutText(Exception):
    def __str__(self) -> str:
        raise KeyError("no text")


class WithHugeText(Exception):
    def __str__(self) -> str:
        return "x" * HUGE


class WithoutNotes(Exception):
    def __getattribute__(self, name: str) -> Any:
        if name == "__notes__":
            raise RuntimeError("no notes")
        return super().__getattribute__(name)


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    with pytest.raises(type(error)) as caught:
        raise error from cause
    return caught.value


def noted(*notes: Any) -> Exception:
    error = ValueError("noted")
    error.__notes__ = list(notes)
    return error


def chain(length: int) -> BaseException:
    error = raised(ValueError("link 0"))
    for number in range(1, length):
        error = raised(ValueError(f"link {number}"), error)
    return error


def circle() -> BaseException:
    error = ValueError("one")
    error.__cause__ = RuntimeError("two")
    error.__cause__.__cause__ = error
    return error


def nested(depth: int, width: int) -> BaseException:
    errors: list[Exception] = [ValueError("leaf")] * width
    for _ in range(depth):
        errors = [ExceptionGroup("group", errors)] * width
    return raised(errors[0])


def validation(count: int) -> ValidationError:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(list[int]).validate_python(["x"] * count)
    return caught.value


HOSTILE = {
    "no text": WithoutText(),
    "huge text": WithHugeText(),
    "huge argument": ValueError("y" * HUGE),
    "huge cause": raised(ValueError("short"), ValueError("x" * HUGE)),
    "no notes": WithoutNotes("said"),
    "huge notes": noted("x" * HUGE, 1, WithoutText()),
    "many notes": noted(*["x" * 1000] * 100_000),
    "long chain": chain(500),
    "circle": circle(),
    "deep group": nested(20, 1),
    "wide group": nested(1, 100),
    "many errors of validation": validation(50_000),
}


@pytest.mark.parametrize("error", HOSTILE.values(), ids=HOSTILE)
def test_any_error_is_written_within_bounds(error: BaseException) -> None:
    assert 0 < len(text_of(error)) <= LONGEST + 1
    assert 0 < len(traceback_of(raised(error))) < 20 * LONGEST


def test_an_error_without_text_says_so() -> None:
    assert text_of(WithoutText()) == "(its text cannot be read: KeyError)"
    assert traceback_of(raised(WithoutText())).endswith("WithoutText: (its text cannot be read: KeyError)\n")


def test_a_traceback_is_that_of_python_with_what_led_to_it() -> None:
    text = traceback_of(raised(RuntimeError("second"), raised(ValueError("amqp://u:s3cret@h"))))
    first, then, second = text.split("\n\n")
    assert first.startswith("Traceback (most recent call last):\n  File ")
    assert first.endswith("ValueError: amqp://u:***@h")
    assert then == "The above exception was the direct cause of the following exception:"
    assert second.endswith("RuntimeError: second\n")


def test_of_a_group_the_first_errors_are_written() -> None:
    text = traceback_of(ExceptionGroup("several", [ValueError(str(number)) for number in range(9)]))
    assert text.startswith("ExceptionGroup: several (9 sub-exceptions)\n  error 1 of 9:\n  | ValueError: 0\n")
    assert "ValueError: 4" in text
    assert "ValueError: 5" not in text


def test_of_few_errors_of_validation_all_are_written_and_of_many_their_number() -> None:
    assert text_of(validation(3)).startswith("3 validation errors for list[int]")
    assert text_of(validation(50_000)) == "50000 errors of validation"
