"""How long a message may be held without an answer, which the broker limits twice.

It closes a channel on which a delivery is unanswered for `consumer_timeout`, and dead-letters a message that
was returned too often. So a message that has to wait is returned in time and taken again, which costs one of
the returns; an ordered listener whose retries would need too many of them is refused.
"""

import re
from datetime import timedelta

from outbox.retry import RetryPolicy

_SHARE = 0.8
"""How much of the broker's timeout is used: what is decided then takes its time."""
_RESERVED_RETURNS = 3
"""Not spent on waiting, as lost connections and workers that die cost one each."""
_TIMED_OUT = re.compile(r"acknowledgement on channel \d+ timed out\. Timeout value used: (\d+) ms")
"""What RabbitMQ says when it closes a channel for this reason."""


class HoldLimit:
    """How long each delivery of a queue may be held, and how often it may be returned for that."""

    def __init__(self, consumer_timeout_seconds: float | None, delivery_limit: int) -> None:
        """Without a timeout the broker lets a message be held for ever."""
        self.seconds = _share_of(consumer_timeout_seconds)
        """How long a delivery may be held before it is returned."""
        self._delivery_limit = delivery_limit

    def may_return(self, returns: int) -> bool:
        """Whether a message that was returned this often may be once more, only because it has to wait."""
        return returns < self._delivery_limit - min(_RESERVED_RETURNS, self._delivery_limit // 2)

    def learn(self, reason: str) -> float | None:
        """The broker's timeout in seconds, if that is why a channel was closed and it was not known."""
        if (found := _TIMED_OUT.search(reason)) is None:
            return None
        timeout_seconds = int(found[1]) / 1000
        if _share_of(timeout_seconds) >= self.seconds:
            return None
        self.seconds = _share_of(timeout_seconds)
        return timeout_seconds


def longest_wait_in_place(consumer_timeout_seconds: float | None, delivery_limit: int) -> float:
    """How many seconds an ordered listener's retries may take in all; half of the returns are for that."""
    return _share_of(consumer_timeout_seconds) * max(1, delivery_limit // 2)


def shortest_delay(policy: RetryPolicy) -> timedelta | None:
    """The shortest delay after which a retry of a message may come; None if there are no retries."""
    return min((delay for each in policy.delays() for delay in policy.fan(each)), default=None)


def longest_retries(policy: RetryPolicy) -> timedelta:
    """How long the retries of a message wait in all, at most."""
    return sum((max(policy.fan(delay)) for delay in policy.delays()), timedelta())


def _share_of(timeout_seconds: float | None) -> float:
    return float("inf") if timeout_seconds is None else timeout_seconds * _SHARE
