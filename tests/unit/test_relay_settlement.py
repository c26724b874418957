from collections.abc import Callable

import pytest

from outbox_core.backoff import Backoff
from outbox_core.publisher import CONFIRMED, NACKED, Outcome, Returned, Unencodable
from outbox_relay.settlement import (
    BackOff,
    Defer,
    Drop,
    Leave,
    Park,
    Policy,
    Sent,
    Settlement,
    Verdict,
    judge,
    judge_expired,
)

STEADY = Backoff(1, 8, jitter=0)
"""Delays of 1, 2, 4, 8, 8… seconds; by the n-th failure 0, 1, 3, 7, 15… seconds have passed."""

NO_ROUTE = Returned(312, "NO_ROUTE")
NACK_ERROR = "nacked by the broker: a queue is full or not available"
ROUTE_ERROR = "unroutable: 312 NO_ROUTE"


@pytest.mark.parametrize(
    ("outcome", "attempts", "policy", "verdict"),
    [
        (CONFIRMED, 0, Policy(STEADY), Sent()),
        (CONFIRMED, 99, Policy(STEADY, max_attempts=1), Sent()),
        (Unencodable("no"), 0, Policy(STEADY), Park("malformed", "no")),
        (Unencodable("no"), 5, Policy(STEADY, unroutable="drop", expired="drop"), Park("malformed", "no")),
        (NACKED, 0, Policy(STEADY), BackOff("nacked", 1, NACK_ERROR)),
        (NACKED, 3, Policy(STEADY), BackOff("nacked", 8, NACK_ERROR)),
        (NACKED, 98, Policy(STEADY, max_attempts=100), BackOff("nacked", 8, NACK_ERROR)),
        (NACKED, 99, Policy(STEADY, max_attempts=100), Park("nacked", f"{NACK_ERROR} (attempt 100 of 100)")),
        (NACKED, 0, Policy(STEADY, max_attempts=1), Park("nacked", f"{NACK_ERROR} (attempt 1 of 1)")),
        (NACKED, 10**6, Policy(STEADY, max_attempts=None), BackOff("nacked", 8, NACK_ERROR)),
        (NO_ROUTE, 0, Policy(STEADY, unroutable_grace_seconds=5), BackOff("unroutable", 1, ROUTE_ERROR)),
        (NO_ROUTE, 2, Policy(STEADY, unroutable_grace_seconds=5), BackOff("unroutable", 4, ROUTE_ERROR)),
        (NO_ROUTE, 3, Policy(STEADY, unroutable_grace_seconds=5), Park("unroutable", ROUTE_ERROR)),
        (NO_ROUTE, 0, Policy(STEADY, unroutable_grace_seconds=0), Park("unroutable", ROUTE_ERROR)),
        (
            NO_ROUTE,
            0,
            Policy(STEADY, unroutable="drop", unroutable_grace_seconds=5),
            BackOff("unroutable", 1, ROUTE_ERROR),
        ),
        (NO_ROUTE, 3, Policy(STEADY, unroutable="drop", unroutable_grace_seconds=5), Drop("unroutable")),
        # Dropping is for after the grace: one that fails too often before that is kept.
        (
            NO_ROUTE,
            1,
            Policy(STEADY, unroutable="drop", max_attempts=2),
            Park("unroutable", f"{ROUTE_ERROR} (attempt 2 of 2)"),
        ),
    ],
)
def test_what_becomes_of_a_row(outcome: Outcome, attempts: int, policy: Policy, verdict: Verdict) -> None:
    assert judge(outcome, attempts, policy) == verdict


def test_what_becomes_of_an_expired_row() -> None:
    assert judge_expired(Policy(expired="drop")) == Drop("expired")
    assert judge_expired(Policy(expired="park")) == Park(
        "expired", "its expiration ended before it could be sent"
    )


def test_verdicts_are_sorted_by_what_has_to_be_done() -> None:
    verdicts: list[Verdict] = [
        Sent(),
        BackOff("nacked", 1.5, "full"),
        Park("malformed", "bad"),
        Drop("expired"),
        Leave(),
        Sent(),
        Defer(2.5, "waits"),
    ]
    assert Settlement.of([(7, row_id) for row_id in range(1, 8)], verdicts) == Settlement(
        sent=[(7, 1), (7, 6)],
        dropped=[(7, 4)],
        delayed=[(7, 2, 1.5, "full", 1), (7, 7, 2.5, "waits", 0)],
        parked=[(7, 3, "bad")],
    )


def test_every_row_needs_a_verdict() -> None:
    with pytest.raises(ValueError, match="shorter"):
        Settlement.of([(7, 1), (7, 2)], [Sent()])


def test_nothing_claimed_is_nothing_to_do() -> None:
    assert Settlement.of([], []) == Settlement()


@pytest.mark.parametrize("verdict", [Park, lambda reason, error: BackOff(reason, 1, error)])
def test_an_error_is_kept_without_passwords_and_within_bounds(verdict: Callable[..., Verdict]) -> None:
    settlement = Settlement.of([(7, 1)], [verdict("unroutable", "amqp://u:s3cret@h \x1b[2J" + "x" * 100_000)])
    [error] = [row[2] for row in settlement.parked] + [row[3] for row in settlement.delayed]
    assert error.startswith(r"amqp://u:***@h \x1b[2Jxxx")
    assert len(error) < 2100
