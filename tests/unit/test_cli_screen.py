"""What people see."""

import json
from datetime import UTC, datetime

import pytest

from outbox_cli import screen


def test_a_table_is_plain_text_of_any_width(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 500
    screen.show_table(("ID", "TEXT"), [(1, long), (22, "[bold]two\nlines[/bold]")])
    assert capsys.readouterr().out == f"ID   TEXT\n1    {long}\n22   [bold]two lines[/bold]\n"


def test_fields_stand_below_each_other_and_what_is_missing_is_left_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    screen.show_fields({"id": 0, "error": None, "routing key": "a.b", "body": "one\ntwo\n"})
    assert capsys.readouterr().out == "id:          0\nrouting key: a.b\nbody:\n  one\n  two\n"


def test_json_has_moments_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    screen.show_json([{"at": datetime(2026, 1, 2, tzinfo=UTC), "raw": b"\xff", "ids": (1, 2)}])
    assert json.loads(capsys.readouterr().out) == [
        {"at": "2026-01-02T00:00:00.000Z", "raw": "\\xff", "ids": [1, 2]}
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0s"), (0.9, "0s"), (59.9, "59s"), (60, "1m"), (7199, "1h"), (86400, "1d"), (86400 * 400, "400d")],
)
def test_an_age_is_told_in_its_largest_unit(seconds: float, text: str) -> None:
    assert screen.age(seconds) == text


def test_a_moment_may_be_infinite() -> None:
    assert screen.moment(datetime.max) == "infinity"  # noqa: DTZ901
    assert screen.moment(datetime.min) == "-infinity"  # noqa: DTZ901


def test_a_text_that_is_no_utf8_still_is_json() -> None:
    assert screen.json_line({"id": "a\udcff", "name": "ü"}) == '{"id": "a\\udcff", "name": "ü"}'
