"""What a log line looks like, and that no password gets into one."""

import json
import logging
import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from outbox_core import logs
from outbox_core.logs import JsonFormatter, TextFormatter
from tests.hostile import ALL, escaped

SECRET_URL = "amqp://shop:s3cret@broker:5672/vhost"  # noqa: S105 - made up


def record(message: str = "claimed batch", *args: object, **extra: object) -> logging.LogRecord:
    values = {"name": "outbox.relay", "levelname": "INFO", "msg": message, "args": args, **extra}
    made = logging.makeLogRecord(values)
    made.created, made.msecs = 1767225600.042, 42.0
    return made


class Unreadable:
    """Cannot be written out."""

    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


def failure(words: str) -> Any:
    def fail() -> None:
        raise RuntimeError(words)

    try:
        fail()
    except RuntimeError:
        return sys.exc_info()


@pytest.mark.parametrize(
    ("made", "line"),
    [
        (record(), "claimed batch"),
        (record(size=500), "claimed batch size=500"),
        (record(reason="not routed"), 'claimed batch reason="not routed"'),
        (record(reason=""), 'claimed batch reason=""'),
        (record(reason='a"b'), r'claimed batch reason="a\"b"'),
        (record(fields={"name": "x"}), "claimed batch name=x"),
        (record("%s of %d", "a", 3), "a of 3"),
        (record("two\nlines"), r"two\nlines"),
        (record(reason="two\nlines"), r'claimed batch reason="two\nlines"'),
        (record(took=timedelta(seconds=1)), "claimed batch took=0:00:01"),
    ],
)
def test_text_is_one_line_with_the_fields_behind_the_message(made: logging.LogRecord, line: str) -> None:
    assert TextFormatter().format(made) == f"2026-01-01T00:00:00.042Z INFO outbox.relay {line}"


def test_text_has_the_traceback_below_the_line() -> None:
    head, *trace = TextFormatter().format(record("failed", exc_info=failure("no"))).splitlines()
    assert head.endswith("INFO outbox.relay failed")
    assert (trace[0], trace[-1]) == ("Traceback (most recent call last):", "RuntimeError: no")


def test_json_is_one_object_a_line() -> None:
    line = JsonFormatter().format(record("two\nlines", size=500, keys=["a"], took=timedelta(seconds=1)))
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2026-01-01T00:00:00.042Z",
        "level": "INFO",
        "logger": "outbox.relay",
        "message": "two\nlines",
        "size": 500,
        "keys": ["a"],
        "took": "0:00:01",
    }


def test_json_has_the_exception_as_a_string() -> None:
    found = json.loads(JsonFormatter().format(record(exc_info=failure("no"))))
    assert found["exception"].endswith("RuntimeError: no")


def test_json_keeps_a_field_that_is_called_like_one_of_its_own() -> None:
    found = json.loads(JsonFormatter().format(record(fields={"time": "noon"})))
    assert (found["time"], found["time_"]) == ("2026-01-01T00:00:00.042Z", "noon")


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
@pytest.mark.parametrize(
    "made",
    [
        record(SECRET_URL),
        record("cannot open %s", SECRET_URL),
        record("cannot open %r", {"url": SECRET_URL}),
        record(url=SECRET_URL),
        record(urls={"broker": [SECRET_URL]}),
        record(error=RuntimeError(SECRET_URL)),
        record(password="s3cret"),  # noqa: S106 - made up
        record(exc_info=failure(SECRET_URL)),
    ],
    ids=["message", "argument", "repr", "field", "nested", "error", "named", "traceback"],
)
def test_no_password_gets_into_a_line(formatter: logging.Formatter, made: logging.LogRecord) -> None:
    line = formatter.format(made)
    assert "s3cret" not in line
    assert "***" in line


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
@pytest.mark.parametrize(
    "made",
    [
        record(ALL),
        record("message %s", ALL),
        record(id=ALL),
        record(ids={ALL: [ALL]}),
        record(error=RuntimeError(ALL)),
        record(exc_info=failure(ALL)),
        record(stack_info=ALL),
    ],
    ids=["message", "argument", "field", "nested", "error", "traceback", "stack"],
)
def test_nothing_in_a_line_acts_on_a_terminal(formatter: logging.Formatter, made: logging.LogRecord) -> None:
    line = formatter.format(made)
    assert escaped(line)
    assert "\\u202e" in line


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
@pytest.mark.parametrize(
    "made",
    [
        record("x" * 10_000_000),
        record("%s", "x " * 5_000_000),
        record(body="x" * 10_000_000),
        record(bodies=["x" * 10_000] * 10_000),
        record(bodies={str(number): "x" * 10_000 for number in range(10_000)}),
        record(numbers=list(range(1_000_000))),
        record(body=b"x" * 10_000_000),
        record(exc_info=failure("x" * 10_000_000)),
        record(stack_info="x" * 10_000_000),
    ],
    ids=["message", "argument", "field", "list", "mapping", "numbers", "bytes", "traceback", "stack"],
)
def test_a_line_has_a_bounded_size(formatter: logging.Formatter, made: logging.LogRecord) -> None:
    assert 1000 < len(formatter.format(made)) < 100_000


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
@pytest.mark.parametrize(
    "made",
    [record("%s", Unreadable()), record("%r", Unreadable()), record("%d", "x"), record(x=Unreadable())],
    ids=["str", "repr", "number", "field"],
)
def test_what_cannot_be_written_is_said_in_the_line(
    formatter: logging.Formatter, made: logging.LogRecord
) -> None:
    assert "cannot be read: " in formatter.format(made)


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    root, aiormq = logging.getLogger(), logging.getLogger("aiormq")
    before, level, its_level = list(root.handlers), root.level, aiormq.level
    yield root
    root.handlers[:] = before
    root.setLevel(level)
    aiormq.setLevel(its_level)


def test_configure_logs_to_stderr_from_the_level_on(
    root: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.configure("info")
    log = logging.getLogger("outbox.relay")
    log.debug("unseen")
    logs.event(log, logging.INFO, "100 % claimed", name="shop", size=500)
    written = capsys.readouterr().err
    assert written.endswith("Z INFO outbox.relay 100 % claimed name=shop size=500\n")
    assert "unseen" not in written


@pytest.mark.parametrize(("level", "shown"), [("INFO", False), ("DEBUG", True)])
def test_what_aiormq_says_of_a_lost_broker_is_for_those_who_ask_for_details(
    root: logging.Logger, capsys: pytest.CaptureFixture[str], level: str, shown: bool
) -> None:
    logs.configure("DEBUG" if not shown else "INFO")
    logs.configure(level)
    logging.getLogger("aiormq.connection").error("error when creating transport")
    assert ("error when creating transport" in capsys.readouterr().err) is shown


def test_configure_again_replaces_its_own_handler_and_leaves_others(
    root: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    others = list(root.handlers)
    logs.configure()
    logs.configure("WARNING", "json")
    logging.getLogger("outbox.relay").warning("once", extra={"size": 1})
    assert [json.loads(line)["message"] for line in capsys.readouterr().err.splitlines()] == ["once"]
    assert root.handlers[:-1] == others


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(("LOUD",), "log level 'LOUD' is unknown"), (("INFO", "xml"), "log format 'xml' is unknown")],
)
def test_configure_refuses_what_it_does_not_know(arguments: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        logs.configure(*arguments)
