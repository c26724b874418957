"""What becomes of a message whose attempt has failed. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from outbox.arguments import BodyError
from outbox.retry import Reject, RetryPolicy
from outbox_worker.errors import ExpiredError, MessageIdMissingError, TransactionEndedError

_MILLISECOND = timedelta(milliseconds=1)
_REFUSED = (BodyError, ExpiredError, MessageIdMissingError)
_FINAL = (*_REFUSED, TransactionEndedError)
"""No retry will change these, whatever the policy says."""


@dataclass(frozen=True, slots=True)
class TryAgain:
    """Another attempt, later."""

    delay: timedelta
    """How much later: one of the policy's tiers."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """No other attempt."""

    reason: str
    """Why not, for people."""


Verdict: TypeAlias = TryAgain | DeadLetter


def verdict(
    policy: RetryPolicy,
    attempt: int,
    error: BaseException,
    *,
    deadline_ms: int | None,
    now_ms: int,
    pick: Callable[[Sequence[timedelta]], timedelta] | None = None,
) -> Verdict:
    """What follows from the failure of this attempt, from 1, at `now_ms`. Raises what the policy raises."""
    if isinstance(error, _FINAL):
        return DeadLetter("no retry can help")
    delay = policy.next_delay(attempt, error, pick)
    if delay is None:
        return DeadLetter(_last(attempt, error, policy))
    if delay not in policy.tiers():
        # There is no queue in which it could wait.
        raise ValueError(
            f"{type(policy).__name__}.next_delay() returned {delay!r}, which is none of its tiers()"
        )
    if deadline_ms is not None and now_ms + delay / _MILLISECOND >= deadline_ms:
        return DeadLetter(f"it expires before a retry in {delay.total_seconds():g} s")
    return TryAgain(delay)


def is_rejection(error: BaseException) -> bool:
    """Whether the message was refused for what it is, rather than failed."""
    return isinstance(error, (Reject, *_REFUSED))


def _last(attempt: int, error: BaseException, policy: RetryPolicy) -> str:
    if isinstance(error, Reject):
        return "the listener rejects it"
    if attempt > len(policy.delays()):
        return f"attempt {attempt} was the last"
    return f"{type(error).__name__} is not retried"
