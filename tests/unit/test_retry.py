"""Retry policies: ladders, tiers, the next delay, and what is refused."""

import math
import pickle
from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox.retry import (
    LONGEST_DELAY,
    SHORTEST_DELAY,
    Constant,
    Delays,
    Exponential,
    Linear,
    NoRetry,
    Reject,
    Retry,
    RetryPolicy,
    duration,
    policy_of,
)


def seconds(*values: float) -> tuple[timedelta, ...]:
    return tuple(timedelta(seconds=value) for value in values)


@pytest.mark.parametrize(
    ("policy", "ladder"),
    [
        (Delays((1, 10, 60, 300)), seconds(1, 10, 60, 300)),
        (Delays(), seconds(1, 10, 60, 300)),
        (Delays((0.25, timedelta(minutes=1))), seconds(0.25, 60)),
        (Delays(()), ()),
        (Exponential(), seconds(1, 2, 4, 8, 16, 32, 64, 128)),
        (Exponential(1, retries=3), seconds(1, 2, 4)),
        (Exponential(0.1, multiplier=3, retries=4), seconds(0.1, 0.3, 0.9, 2.7)),
        (Exponential(100, maximum=250, retries=4), seconds(100, 200, 250, 250)),
        (Exponential(5, multiplier=1, retries=2), seconds(5, 5)),
        (Exponential(1, multiplier=1e300, retries=3), seconds(1, 300, 300)),
        (Exponential(retries=0), ()),
        (Constant(60), seconds(60, 60, 60, 60, 60)),
        (Constant(timedelta(milliseconds=50), retries=2), seconds(0.05, 0.05)),
        (Linear(), seconds(10, 20, 30, 40, 50)),
        (Linear(1, step=5, retries=3), seconds(1, 6, 11)),
        (Linear(1, step=5, maximum=7, retries=4), seconds(1, 6, 7, 7)),
        (NoRetry(), ()),
    ],
)
def test_a_policy_is_a_ladder_with_one_delay_per_retry(
    policy: RetryPolicy, ladder: tuple[timedelta, ...]
) -> None:
    assert policy.delays() == ladder


def test_each_failed_attempt_moves_up_the_ladder_and_the_last_dead_letters() -> None:
    policy = policy_of((1, 10, 60, 300))
    delays = [policy.next_delay(attempt, RuntimeError()) for attempt in range(1, 7)]
    assert delays == [*seconds(1, 10, 60, 300), None, None]


def test_reject_is_never_retried_even_where_it_is_named() -> None:
    class Hopeless(Reject):
        pass

    policy = Constant(1, only=(Reject, Exception))
    assert policy.next_delay(1, Reject("no such user")) is None
    assert policy.next_delay(1, Hopeless()) is None


@pytest.mark.parametrize(
    ("after", "policy", "expected"),
    [
        (None, Delays((1, 10, 60)), 1),
        (5, Delays((1, 10, 60)), 10),
        (10, Delays((1, 10, 60)), 10),
        (10.001, Delays((1, 10, 60)), 60),
        (timedelta(minutes=1), Delays((1, 10, 60)), 60),
        (3600, Delays((1, 10, 60)), 60),
        (0.5, Delays((60, 10, 1)), 1),
        (9, Delays((10,), jitter=0.2), 10),
        (11, Delays((10,), jitter=0.2), 12),
        (5, Delays((1, 10), only=KeyError), 10),
        (None, Delays((1, 10), only=KeyError), 1),
        (5, NoRetry(), None),
        (None, NoRetry(), None),
    ],
)
def test_a_retry_asked_for_takes_the_shortest_tier_that_is_long_enough(
    after: float | timedelta | None, policy: RetryPolicy, expected: float | None
) -> None:
    delay = None if expected is None else timedelta(seconds=expected)
    assert policy.next_delay(1, Retry(after)) == delay


def test_a_retry_asked_for_counts_as_an_attempt() -> None:
    policy = Delays((1, 10))
    delays = [policy.next_delay(attempt, Retry(after=5)) for attempt in range(1, 4)]
    assert delays == [*seconds(10, 10), None]
    assert [policy.next_delay(attempt, Retry()) for attempt in range(1, 4)] == [*seconds(1, 10), None]


def test_a_retry_says_what_it_asks_for_also_in_another_process() -> None:
    assert str(Retry()) == "try again later"
    assert str(Retry(90)) == "try again after 0:01:30"
    assert pickle.loads(pickle.dumps(Retry(after=90))).after == timedelta(seconds=90)  # noqa: S301 - our own


@pytest.mark.parametrize("after", [0, -1, "10", True, math.nan])
def test_a_retry_after_what_is_no_delay_is_refused(after: object) -> None:
    with pytest.raises((TypeError, ValueError), match="Retry: after "):
        Retry(after=after)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (TimeoutError(), timedelta(seconds=1)),
        (ConnectionRefusedError(), timedelta(seconds=1)),
        (ValueError(), None),
        (KeyboardInterrupt(), None),
    ],
)
def test_only_these_exceptions_are_retried(error: BaseException, expected: timedelta | None) -> None:
    policy = Delays((1,), only=(TimeoutError, ConnectionError))
    assert policy.next_delay(1, error) == expected


def test_one_exception_class_is_enough_for_only() -> None:
    assert Delays((1,), only=TimeoutError) == Delays((1,), only=(TimeoutError,))


def test_what_is_not_an_exception_in_the_narrow_sense_is_not_retried_by_default() -> None:
    assert Constant().next_delay(1, SystemExit()) is None


def test_without_jitter_the_tiers_are_the_ladder_without_repetitions() -> None:
    assert Delays((1, 10, 1, 10)).tiers() == seconds(1, 10)
    assert Constant(5, retries=100).tiers() == seconds(5)


def test_jitter_fans_each_step_out_into_three_tiers_of_whole_milliseconds() -> None:
    assert Delays((10,), jitter=0.2).tiers() == seconds(8, 10, 12)
    assert Delays((0.005,), jitter=0.3).tiers() == seconds(0.004, 0.005, 0.006)


@pytest.mark.parametrize(
    ("delay", "tiers"),
    [
        (SHORTEST_DELAY, (SHORTEST_DELAY, SHORTEST_DELAY * 2)),
        (LONGEST_DELAY, (LONGEST_DELAY / 5, LONGEST_DELAY)),
    ],
)
def test_jitter_stays_within_the_bounds_of_a_delay(delay: timedelta, tiers: tuple[timedelta, ...]) -> None:
    assert Delays((delay,), jitter=0.8).tiers() == tiers


@pytest.mark.parametrize(("pick", "expected"), [(min, 8), (max, 12)])
def test_the_next_delay_is_picked_among_the_tiers_of_its_step(
    pick: Callable[[Sequence[timedelta]], timedelta], expected: int
) -> None:
    policy = Delays((1, 10), jitter=0.2)
    assert policy.next_delay(2, RuntimeError(), pick) == timedelta(seconds=expected)


policies = st.builds(
    Exponential,
    st.floats(0.001, 10),
    multiplier=st.floats(1, 1e6),
    maximum=st.floats(10, 86400),
    retries=st.integers(0, 100),
    jitter=st.floats(0, 0.999),
) | st.builds(Delays, st.lists(st.floats(0.001, 86400), max_size=10), jitter=st.floats(0, 0.999))


@given(policies, st.integers(1, 101))
def test_every_delay_that_is_ever_asked_for_has_a_tier(policy: RetryPolicy, attempt: int) -> None:
    delay = policy.next_delay(attempt, RuntimeError())
    assert (delay is None) == (attempt > len(policy.delays()))
    assert delay is None or delay in policy.tiers()


@given(policies, st.integers(1, 101), st.floats(0.001, 86400))
def test_every_retry_that_is_asked_for_has_a_tier(policy: RetryPolicy, attempt: int, after: float) -> None:
    delay = policy.next_delay(attempt, Retry(after))
    assert (delay is None) == (attempt > len(policy.delays()))
    longer = [tier for tier in policy.tiers() if tier >= duration(after)]
    assert delay is None or delay == min(longer, default=max(policy.tiers()))


@given(policies)
def test_every_tier_is_whole_milliseconds_within_bounds(policy: RetryPolicy) -> None:
    for tier in policy.tiers():
        assert SHORTEST_DELAY <= tier <= LONGEST_DELAY
        assert tier.microseconds % 1000 == 0


def test_a_policy_is_itself_and_a_sequence_is_its_ladder() -> None:
    exponential = Exponential(2)
    assert policy_of(exponential) is exponential
    assert policy_of([1, 2.5]) == Delays((1, 2.5))
    assert policy_of(range(1, 4)) == Delays((1, 2, 3))
    assert policy_of(()).delays() == NoRetry().delays()


def test_seconds_and_timedeltas_make_equal_policies() -> None:
    assert Exponential(1, maximum=60) == Exponential(timedelta(seconds=1), maximum=timedelta(minutes=1))
    assert hash(policy_of([1])) == hash(policy_of((timedelta(seconds=1),)))


def test_a_fraction_of_a_millisecond_is_rounded() -> None:
    assert duration(1.2344) == timedelta(milliseconds=1234)
    assert duration(timedelta(microseconds=1600)) == timedelta(milliseconds=2)


@pytest.mark.parametrize(
    "value", [0, -1, 0.0009, 86400.001, math.nan, math.inf, timedelta(0), timedelta(days=2)]
)
def test_a_delay_out_of_bounds_is_refused_by_name(value: float | timedelta) -> None:
    with pytest.raises(ValueError, match="between 1 ms") as refused:
        policy_of((1, value))
    assert repr(value) in str(refused.value)


@pytest.mark.parametrize("value", [5, "1,10", b"1", {1, 10}, None, 1.5, timedelta(seconds=1)])
def test_what_is_not_a_sequence_of_delays_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="give a sequence of seconds") as refused:
        policy_of(value)  # type: ignore[arg-type]
    assert repr(value) in str(refused.value)


@pytest.mark.parametrize("value", [True, "10", None, 1j])
def test_a_delay_of_another_type_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="number of seconds or a timedelta") as refused:
        policy_of((1, value))  # type: ignore[arg-type]
    assert repr(value) in str(refused.value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Exponential(1, multiplier=0.5), "multiplier 0.5"),
        (lambda: Exponential(1, multiplier=math.nan), "multiplier nan"),
        (lambda: Exponential(60, maximum=10), "initial 0:01:00 is longer than maximum 0:00:10"),
        (lambda: Exponential(-1), "Exponential: initial -1"),
        (lambda: Linear(1, step=0), "Linear: step 0"),
        (lambda: Linear(60, maximum=10), "Linear: initial 0:01:00"),
        (lambda: Constant(1, retries=-1), "Constant: -1 retries"),
        (lambda: Constant(1, retries=101), "101 retries, but 0 to 100"),
        (lambda: Constant(1, retries=True), "retries True"),
        (lambda: Constant(1, retries=2.0), "retries 2.0"),  # type: ignore[arg-type]
        (lambda: Delays([1] * 101), "101 retries"),
        (lambda: Constant(1, jitter=1), "jitter 1 "),
        (lambda: Constant(1, jitter=-0.1), "jitter -0.1"),
        (lambda: Constant(1, jitter=math.nan), "jitter nan"),
        (lambda: Constant(1, jitter=True), "jitter True"),
        (lambda: NoRetry(only=()), "NoRetry"),
        (lambda: Constant(1, only="TimeoutError"), "only='TimeoutError'"),  # type: ignore[arg-type]
        (lambda: Constant(1, only=(TimeoutError, int)), "only=<class 'int'>"),  # type: ignore[arg-type]
        (lambda: Constant(1).next_delay(0, RuntimeError()), "attempt 0"),
    ],
)
def test_a_mistake_in_a_policy_is_named(make: Callable[[], object], message: str) -> None:
    with pytest.raises((TypeError, ValueError)) as refused:
        make()
    assert message in str(refused.value)


def test_a_policy_of_ones_own_only_says_its_delays() -> None:
    class Twice(RetryPolicy):
        def delays(self) -> tuple[timedelta, ...]:
            return seconds(1, 1)

    assert policy_of(Twice()).next_delay(2, RuntimeError()) == timedelta(seconds=1)
    with pytest.raises(NotImplementedError, match="RetryPolicy"):
        RetryPolicy().delays()
