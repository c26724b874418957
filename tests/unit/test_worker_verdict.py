from datetime import timedelta
from typing import Any

import pytest

from outbox import Constant, Delays, NoRetry, Reject, Retry, RetryPolicy
from outbox.arguments import BodyError
from outbox_worker import (
    ExpiredError,
    HandlerTimeoutError,
    MessageIdMissingError,
    TransactionAbortedError,
    TransactionEndedError,
)
from outbox_worker.verdict import DeadLetter, TryAgain, is_rejection, verdict

LADDER = Delays((1, 10, 60))
ONLY = Constant(5, retries=2, only=ConnectionError)

CASES: list[tuple[RetryPolicy, int, BaseException, int | None, Any]] = [
    (LADDER, 1, ValueError(), None, 1),
    (LADDER, 3, ValueError(), None, 60),
    (LADDER, 4, ValueError(), None, "attempt 4 was the last"),
    (LADDER, 99, ValueError(), None, "attempt 99 was the last"),
    (LADDER, 1, HandlerTimeoutError(), None, 1),
    (LADDER, 1, Reject(), None, "the listener rejects it"),
    (LADDER, 1, Retry(after=5), None, 10),
    (LADDER, 4, Retry(after=5), None, "attempt 4 was the last"),
    (LADDER, 1, BodyError(), None, "no retry can help"),
    (LADDER, 1, ExpiredError(), None, "no retry can help"),
    (LADDER, 1, MessageIdMissingError(), None, "no retry can help"),
    (LADDER, 1, TransactionEndedError(), None, "no retry can help"),
    (LADDER, 1, TransactionAbortedError(), None, 1),
    (NoRetry(), 1, ValueError(), None, "attempt 1 was the last"),
    (ONLY, 1, ConnectionError(), None, 5),
    (ONLY, 1, ValueError(), None, "ValueError is not retried"),
    (ONLY, 1, Retry(), None, 5),
    # At second 100: the retry would begin in time, at the last moment, or too late.
    (LADDER, 2, ValueError(), 110_001, 10),
    (LADDER, 2, ValueError(), 110_000, "it expires before a retry in 10 s"),
    (LADDER, 2, ValueError(), 99_000, "it expires before a retry in 10 s"),
    (LADDER, 2, Reject(), 99_000, "the listener rejects it"),
]


@pytest.mark.parametrize(("policy", "attempt", "error", "deadline_ms", "expected"), CASES)
def test_what_follows_from_a_failure(
    policy: RetryPolicy, attempt: int, error: BaseException, deadline_ms: int | None, expected: Any
) -> None:
    judged = verdict(policy, attempt, error, deadline_ms=deadline_ms, now_ms=100_000)
    if isinstance(expected, str):
        assert judged == DeadLetter(expected)
    else:
        assert judged == TryAgain(timedelta(seconds=expected))


class Invented(Delays):
    def next_delay(self, attempt: int, error: BaseException, pick: Any = None) -> timedelta:
        return timedelta(seconds=2)


def test_a_delay_that_is_no_tier_is_an_error_of_the_policy() -> None:
    with pytest.raises(ValueError, match="Invented.next_delay.. returned .*, which is none of its tiers"):
        verdict(Invented((1, 3)), 1, ValueError(), deadline_ms=None, now_ms=0)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Reject(), True),
        (BodyError(), True),
        (ExpiredError(), True),
        (TransactionEndedError(), False),
        (ValueError(), False),
    ],
)
def test_a_rejection_is_about_the_message_itself(error: BaseException, expected: bool) -> None:
    assert is_rejection(error) is expected
