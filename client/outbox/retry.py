"""When a failed message is tried again: retry policies, `Retry` for "not now" and `Reject` for "never".

A policy is a ladder with one delay per retry. Each delay that it may ask for is a queue on the broker (a
tier), so a policy must be able to name all of them in advance: jitter picks among fixed tiers.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from typing import TypeAlias

Duration: TypeAlias = float | timedelta
"""A number of seconds, or a timedelta; rounded to whole milliseconds, the unit of the broker's TTL."""

SHORTEST_DELAY = timedelta(milliseconds=1)
LONGEST_DELAY = timedelta(hours=24)
MOST_RETRIES = 100

_MILLISECOND = timedelta(milliseconds=1)


class Reject(Exception):  # noqa: N818 — raised on purpose by a listener, it is a verdict and not an error
    """Raised by a listener: this message will never succeed, dead-letter it without another retry."""


class Retry(Exception):  # noqa: N818 — as Reject
    """Raised by a listener: not now, try this message again later.

    It counts as an attempt, and after the last delay of the policy it dead-letters as any exception does.
    """

    def __init__(self, after: Duration | None = None) -> None:
        """Wait at least `after`, seconds or a timedelta, as far as the policy has a delay that long."""
        super().__init__()
        self.after = None if after is None else duration(after, "Retry: after")

    def __str__(self) -> str:
        return "try again later" if self.after is None else f"try again after {self.after}"


def duration(value: Duration, name: str = "delay") -> timedelta:
    """`value` in whole milliseconds, or an error that names it and what is allowed."""
    match value:
        case bool():
            raise TypeError(f"{name} {value!r}: a delay is a number of seconds or a timedelta, not a bool")
        case timedelta():
            milliseconds = value / _MILLISECOND
        case int() | float():
            milliseconds = value * 1000
        case _:
            raise TypeError(
                f"{name} {value!r}: a delay is a number of seconds or a timedelta, not {type(value).__name__}"
            )
    if not SHORTEST_DELAY / _MILLISECOND <= milliseconds <= LONGEST_DELAY / _MILLISECOND:  # NaN fails too
        raise ValueError(f"{name} {value!r}: a delay must be between 1 ms (0.001) and 24 hours (86400)")
    return timedelta(milliseconds=round(milliseconds))


@dataclass(frozen=True)
class RetryPolicy:
    """The delays between the attempts at a message, and the exceptions for which there are any."""

    _: KW_ONLY
    jitter: float = 0.0
    """How far a delay may move, as a fraction of it below 1: 0.2 makes 10 s one of 8 s, 10 s and 12 s."""
    only: type[BaseException] | tuple[type[BaseException], ...] = (Exception,)
    """The exceptions worth a retry; any other goes straight to the dead-letter queue."""

    def __post_init__(self) -> None:
        _fraction(self.jitter, type(self).__name__)
        object.__setattr__(self, "only", _exceptions(self.only, type(self).__name__))

    def delays(self) -> tuple[timedelta, ...]:
        """The ladder: the delay before each retry, without jitter."""
        raise NotImplementedError(f"{type(self).__name__} does not say its delays()")

    def fan(self, delay: timedelta) -> tuple[timedelta, ...]:
        """The delays that `delay` may become by jitter, shortest first."""
        if not self.jitter:
            return (delay,)
        moved = (delay * (1 - self.jitter), delay, delay * (1 + self.jitter))
        return tuple(dict.fromkeys(duration(min(max(d, SHORTEST_DELAY), LONGEST_DELAY)) for d in moved))

    def tiers(self) -> tuple[timedelta, ...]:
        """Every delay that may be asked for, once, in the order of the ladder."""
        return tuple(dict.fromkeys(tier for delay in self.delays() for tier in self.fan(delay)))

    def next_delay(
        self,
        attempt: int,
        error: BaseException,
        pick: Callable[[Sequence[timedelta]], timedelta] | None = None,
    ) -> timedelta | None:
        """How long to wait now that `attempt` attempts have failed, the last with `error`.

        None: dead-letter. `pick` chooses among the tiers of a jittered delay, at random by default. A `Retry`
        is worth a retry whatever `only` says. One with an `after` waits for the shortest of all tiers that is
        not shorter than that, or for the longest where none is; never longer than a tier, since each is a
        queue.
        """
        if attempt < 1:
            raise ValueError(f"attempt {attempt}: the first attempt that can fail is 1")
        ladder = self.delays()
        if attempt > len(ladder) or isinstance(error, Reject):
            return None
        if isinstance(error, Retry):
            if error.after is not None:
                return _not_shorter(self.tiers(), error.after)
        elif not isinstance(error, self.only):
            return None
        return (pick or _any_of)(self.fan(ladder[attempt - 1]))


@dataclass(frozen=True)
class Delays(RetryPolicy):
    """A ladder written out, as `retry_delays=(1, 10, 60, 300)` is."""

    steps: Sequence[Duration] = (1, 10, 60, 300)
    """The delay before each retry; as many retries as there are delays."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "steps", _ladder(self.steps))

    def delays(self) -> tuple[timedelta, ...]:
        return tuple(duration(step) for step in self.steps)


@dataclass(frozen=True)
class Exponential(RetryPolicy):
    """Each delay is a multiple of the one before, up to a maximum: 1 s, 2 s, 4 s, 8 s, …"""

    initial: Duration = 1
    """The delay before the first retry."""
    _: KW_ONLY
    multiplier: float = 2.0
    """What each delay is multiplied by to give the next, at least 1."""
    maximum: Duration = 300
    """No delay is longer than this, jitter aside."""
    retries: int = 8
    """How many retries there are."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _retries(self.retries, "Exponential")
        if not 1 <= self.multiplier < math.inf:
            raise ValueError(f"Exponential: multiplier {self.multiplier!r} must be a number of 1 or more")
        _whole(self, "initial", "maximum")
        _ordered(self, "initial", "maximum")

    def delays(self) -> tuple[timedelta, ...]:
        return tuple(self._steps())

    def _steps(self) -> Iterator[timedelta]:
        delay, maximum = duration(self.initial), duration(self.maximum)
        for _ in range(self.retries):
            yield duration(delay)
            delay = maximum if maximum / delay <= self.multiplier else delay * self.multiplier


@dataclass(frozen=True)
class Linear(RetryPolicy):
    """Each delay is longer than the one before by the same step, up to a maximum: 10 s, 20 s, 30 s, …"""

    initial: Duration = 10
    """The delay before the first retry."""
    _: KW_ONLY
    step: Duration = 10
    """What each delay is longer by than the one before."""
    maximum: Duration = 300
    """No delay is longer than this, jitter aside."""
    retries: int = 5
    """How many retries there are."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _retries(self.retries, "Linear")
        _whole(self, "initial", "step", "maximum")
        _ordered(self, "initial", "maximum")

    def delays(self) -> tuple[timedelta, ...]:
        initial, step, maximum = duration(self.initial), duration(self.step), duration(self.maximum)
        return tuple(min(initial + step * n, maximum) for n in range(self.retries))


@dataclass(frozen=True)
class Constant(RetryPolicy):
    """The same delay before every retry; one tier, however many retries."""

    delay: Duration = 60
    """The delay before each retry."""
    _: KW_ONLY
    retries: int = 5
    """How many retries there are."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _retries(self.retries, "Constant")
        _whole(self, "delay")

    def delays(self) -> tuple[timedelta, ...]:
        return (duration(self.delay),) * self.retries


@dataclass(frozen=True)
class NoRetry(RetryPolicy):
    """The first failure dead-letters."""

    def delays(self) -> tuple[timedelta, ...]:
        return ()


def policy_of(value: RetryPolicy | Sequence[Duration]) -> RetryPolicy:
    """The policy that `retry_delays=value` means: a policy as it is, a sequence of delays as their ladder."""
    if isinstance(value, RetryPolicy):
        return value
    return Delays(value)


def _ladder(steps: object) -> tuple[timedelta, ...]:
    if isinstance(steps, str | bytes) or not isinstance(steps, Sequence):
        raise TypeError(
            f"retry delays {steps!r}: give a sequence of seconds or timedeltas such as (1, 10, 60), "
            "() for no retry, or a policy such as Exponential(1)"
        )
    _retries(len(steps), "retry delays")
    return tuple(duration(step, f"retry delays {steps!r}: delay") for step in steps)


def _not_shorter(tiers: Sequence[timedelta], after: timedelta) -> timedelta:
    return min((tier for tier in tiers if tier >= after), default=max(tiers))


def _any_of(tiers: Sequence[timedelta]) -> timedelta:
    import random  # not for whoever only emits: `import outbox` is kept fast

    return random.choice(tiers)  # noqa: S311 — spreads load, guards nothing


def _fraction(jitter: object, policy: str) -> None:
    if isinstance(jitter, bool) or not isinstance(jitter, int | float) or not 0 <= jitter < 1:
        raise ValueError(f"{policy}: jitter {jitter!r} must be a fraction of the delay, from 0 to below 1")


def _exceptions(only: object, policy: str) -> tuple[type[BaseException], ...]:
    kinds = only if isinstance(only, tuple) else (only,)
    if not kinds:
        raise ValueError(f"{policy}: only=() would never retry; say NoRetry() for that")
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise TypeError(f"{policy}: only={kind!r} must be an exception class or a tuple of them")
    return kinds


def _retries(retries: int, policy: str) -> None:
    if isinstance(retries, bool) or not isinstance(retries, int):
        raise TypeError(f"{policy}: retries {retries!r} must be a whole number")
    if not 0 <= retries <= MOST_RETRIES:
        raise ValueError(
            f"{policy}: {retries} retries, but 0 to {MOST_RETRIES} are possible: each delay is a queue"
        )


def _whole(policy: RetryPolicy, *fields: str) -> None:
    for field in fields:
        value = duration(getattr(policy, field), f"{type(policy).__name__}: {field}")
        object.__setattr__(policy, field, value)


def _ordered(policy: RetryPolicy, low: str, high: str) -> None:
    least, most = getattr(policy, low), getattr(policy, high)
    if least > most:
        raise ValueError(f"{type(policy).__name__}: {low} {least} is longer than {high} {most}")
