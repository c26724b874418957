from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox_operator import durations

GOOD = [
    ("300ms", timedelta(milliseconds=300), "300ms"),
    ("1s", timedelta(seconds=1), "1s"),
    ("10s", timedelta(seconds=10), "10s"),
    ("1m", timedelta(minutes=1), "1m"),
    ("5m", timedelta(minutes=5), "5m"),
    ("24h", timedelta(hours=24), "24h"),
    ("1h30m", timedelta(minutes=90), "1h30m"),
    ("90m", timedelta(minutes=90), "1h30m"),
    ("60s", timedelta(minutes=1), "1m"),
    ("1500ms", timedelta(milliseconds=1500), "1s500ms"),
    ("1h2m3s4ms", timedelta(hours=1, minutes=2, seconds=3, milliseconds=4), "1h2m3s4ms"),
    ("30s1m", timedelta(seconds=90), "1m30s"),
    ("0s", timedelta(), "0s"),
    ("0h", timedelta(), "0s"),
    ("007s", timedelta(seconds=7), "7s"),
    ("99999h", timedelta(hours=99_999), "99999h"),
]


@pytest.mark.parametrize(("text", "duration", "shortest"), GOOD, ids=[text for text, _, _ in GOOD])
def test_a_text_and_its_duration(text: str, duration: timedelta, shortest: str) -> None:
    assert durations.parse(text) == duration
    assert durations.format(duration) == shortest


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "s",
        "1.5s",
        "-1s",
        "+1s",
        "1 s",
        " 1s",
        "1s ",
        "1s\n",
        "1d",
        "1us",
        "1S",
        "100000s",
        "1h1m1s1ms1s",
        "١s",
        "PT1S",
        "1_0s",
    ],
)
def test_another_text_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(
        ValueError, match="is not a duration: write whole numbers with h, m, s or ms"
    ) as raised:
        durations.parse(text)
    assert repr(text) in str(raised.value)


@pytest.mark.parametrize(
    ("duration", "complaint"),
    [
        (timedelta(microseconds=1), "a whole number of milliseconds, 0 or more"),
        (timedelta(milliseconds=-1), "a whole number of milliseconds, 0 or more"),
        (timedelta(hours=100_000), "at most 99999 hours"),
    ],
)
def test_a_duration_without_a_text_is_refused(duration: timedelta, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        durations.format(duration)


@given(st.integers(min_value=0, max_value=99_999 * 3_600_000))
def test_a_duration_survives_its_text(milliseconds: int) -> None:
    duration = timedelta(milliseconds=milliseconds)
    text = durations.format(duration)
    assert durations.parse(text) == duration
    assert len(text) <= durations.LONGEST_TEXT
