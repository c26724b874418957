import pytest

from outbox_core.backoff import Backoff


def exactly(backoff: Backoff, failures: int) -> float:
    return backoff.delay(failures, spread=lambda: 0.5)


def test_delays_double_up_to_the_maximum() -> None:
    backoff = Backoff(0.5, 60)
    delays = [exactly(backoff, failures) for failures in range(1, 10)]
    assert delays == [0.5, 1, 2, 4, 8, 16, 32, 60, 60]


def test_jitter_spreads_a_delay_either_way_by_its_fraction() -> None:
    backoff = Backoff(8, 60, jitter=0.25)
    assert backoff.delay(1, spread=lambda: 0.0) == 6
    assert backoff.delay(1, spread=lambda: 1.0) == 10
    assert all(6 <= backoff.delay(1) <= 10 for _ in range(100))
    assert len({backoff.delay(1) for _ in range(100)}) > 1


def test_without_jitter_every_delay_is_exact() -> None:
    assert {Backoff(1, 4, jitter=0).delay(2) for _ in range(10)} == {2}


@pytest.mark.parametrize(
    ("failures", "seconds"), [(1, 0), (2, 0.5), (3, 1.5), (4, 3.5), (8, 63.5), (9, 123.5)]
)
def test_a_message_has_waited_as_long_as_all_delays_before(failures: int, seconds: float) -> None:
    assert Backoff(0.5, 60).waited(failures) == seconds


@pytest.mark.parametrize("failures", [1_000, 100_000])
def test_no_number_of_failures_is_too_large(failures: int) -> None:
    assert exactly(Backoff(0.5, 60), failures) == 60
    assert Backoff(0.5, 60).waited(failures) > 50_000


@pytest.mark.parametrize(
    ("initial", "maximum", "jitter", "complaint"),
    [
        (0, 60, 0, r"initial \(0 s\) must be more than 0 and at most maximum \(60 s\)"),
        (-1, 60, 0, "must be more than 0"),
        (61, 60, 0, r"initial \(61 s\) must be more than 0 and at most maximum \(60 s\)"),
        (1, 60, 1, "jitter 1 must be at least 0 and below 1"),
        (1, 60, -0.1, "jitter -0.1 must be at least 0"),
    ],
)
def test_a_backoff_that_cannot_be_is_refused(
    initial: float, maximum: float, jitter: float, complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        Backoff(initial, maximum, jitter)
