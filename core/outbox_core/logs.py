"""Structured logs, one line an event on stderr, as text for people or as JSON for machines.

Fields are given by `event(log, logging.INFO, "claimed batch", size=500)`, or as `extra={"size": 500}` to any
logger. What looks like a password is masked as the last line of defence, wherever in the event it is.
"""

import json
import logging
import re
import time
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

Format: TypeAlias = Literal["text", "json"]

_PASSWORDS = (
    # Greedy, so that a password with a raw @ or / in it is masked whole: it may cost a path, never a leak.
    # What looks like a port is none.
    re.compile(r"([a-z][a-z0-9+.\-]{0,30}://[^\s:/@]*):(?!\d{1,5}(?:[/?#,\s]|$))\S*@", re.IGNORECASE),
    re.compile(r"(password(?:=|['\"]:\s*))(?:'[^']*'|\"[^\"]*\"|[^&\s]+)", re.IGNORECASE),
)
_STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "fields"}
_PLAIN = re.compile(r"[^\s\"=]+")


def configure(level: str = "INFO", format: Format = "text") -> None:  # noqa: A002 - what a user calls it
    """Log to stderr from this level on. Calling it again replaces what it did before, and nothing else."""
    formatters = {"text": TextFormatter, "json": JsonFormatter}
    if format not in formatters:
        raise ValueError(f"log format {format!r} is unknown; choose text or json")
    levels = logging.getLevelNamesMapping()
    if level.upper() not in levels:
        raise ValueError(f"log level {level!r} is unknown; choose DEBUG, INFO, WARNING or ERROR")
    handler = _Handler()
    handler.setFormatter(formatters[format]())
    root = logging.getLogger()
    for earlier in [known for known in root.handlers if isinstance(known, _Handler)]:
        root.removeHandler(earlier)
    root.addHandler(handler)
    root.setLevel(levels[level.upper()])
    # It has a line of its own, at times with a traceback, for each lost connection and each try to come back.
    # Whoever uses it here says the same in words of its own.
    logging.getLogger("aiormq").setLevel(logging.NOTSET if level.upper() == "DEBUG" else logging.CRITICAL)


def event(log: logging.Logger, level: int, message: str, /, **fields: object) -> None:
    """Log an event with its fields. Unlike with `extra`, a field may have any name, `name` included."""
    # The message is an argument, because a percent sign in it is just that.
    log.log(level, "%s", message, extra={"fields": fields}, stacklevel=2)


def mask(text: str) -> str:
    """The text without the passwords of the URLs and DSNs in it: `amqp://shop:***@broker`."""
    if "://" in text:
        text = _PASSWORDS[0].sub(r"\1:***@", text)
    return _PASSWORDS[1].sub(r"\1***", text)


class TextFormatter(logging.Formatter):
    """`2026-01-01T00:00:00.000Z INFO outbox.relay claimed batch size=500`, a traceback below it."""

    def format(self, record: logging.LogRecord) -> str:
        head = f"{_time(record)} {record.levelname} {record.name} {_one_line(record.getMessage())}"
        fields = "".join(f" {name}={_quoted(value)}" for name, value in _fields(record).items())
        trace = _traceback(self, record)
        return mask(head + fields + (f"\n{trace}" if trace else ""))


class JsonFormatter(logging.Formatter):
    """One object with time, level, logger, message, the fields, and the exception with its traceback."""

    def format(self, record: logging.LogRecord) -> str:
        own = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if trace := _traceback(self, record):
            own["exception"] = trace
        fields = {f"{name}_" if name in own else name: value for name, value in _fields(record).items()}
        return json.dumps(_masked(own | fields), default=lambda value: mask(str(value)), ensure_ascii=False)


class _Handler(logging.StreamHandler[Any]):
    """Ours, told apart from those that an application or a test has installed."""


def _fields(record: logging.LogRecord) -> dict[str, object]:
    extras = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    return {**extras, **getattr(record, "fields", {})}


def _time(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    parts = [formatter.formatException(record.exc_info) if record.exc_info else record.exc_text]
    parts.append(formatter.formatStack(record.stack_info) if record.stack_info else None)
    return "\n".join(part for part in parts if part)


def _one_line(text: str) -> str:
    return text.replace("\r", "\\r").replace("\n", "\\n")


def _quoted(value: object) -> str:
    text = mask(str(value))
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def _masked(value: object) -> object:
    match value:
        case str():
            return mask(value)
        case Mapping():
            return {str(key): _masked_field(str(key), item) for key, item in value.items()}
        case list() | tuple():
            return [_masked(item) for item in value]
        case _:
            return value


def _masked_field(name: str, value: object) -> object:
    return "***" if name.lower().endswith("password") else _masked(value)
