"""Structured logs, one line an event on stderr, as text for people or as JSON for machines.

Fields are given by `event(log, logging.INFO, "claimed batch", size=500)`, or as `extra={"size": 500}` to any
logger. What looks like a password is masked as the last line of defence, wherever in the event it is; what
acts on a terminal is escaped; and what is too long is cut, before anything else is done with it.
"""

import json
import logging
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, TypeAlias, TypeVar

from outbox_core.error_text import text_of, traceback_of
from outbox_core.masking import LONGEST, mask
from outbox_core.printable import printable, printable_json, printable_lines

Format: TypeAlias = Literal["text", "json"]

_STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "fields"}
_PLAIN = re.compile(r"[^\s\"=]+")
_DEEPEST = 5
_ITEM = 10
"""What an item of a list costs beside its text."""
_T = TypeVar("_T")


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


class TextFormatter(logging.Formatter):
    """`2026-01-01T00:00:00.000Z INFO outbox.relay claimed batch size=500`, a traceback below it."""

    def format(self, record: logging.LogRecord) -> str:
        head = printable(f"{_time(record)} {record.levelname} {record.name} {_message(record)}")
        fields = "".join(f" {name}={_quoted(name, value)}" for name, value in _fields(record).items())
        trace = _traceback(self, record)
        return head + fields + (f"\n{printable_lines(trace)}" if trace else "")


class JsonFormatter(logging.Formatter):
    """One object with time, level, logger, message, the fields, and the exception with its traceback."""

    def format(self, record: logging.LogRecord) -> str:
        own: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": _message(record),
        }
        if trace := _traceback(self, record):
            own["exception"] = trace
        for name, value in _fields(record).items():
            own[f"{name}_" if name in own else name] = _masked_field(name, value, _Room())
        return printable_json(json.dumps(own, ensure_ascii=False))


class _Handler(logging.StreamHandler[Any]):
    """Ours, told apart from those that an application or a test has installed."""


def _fields(record: logging.LogRecord) -> dict[str, object]:
    extras = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    return {**extras, **getattr(record, "fields", {})}


def _time(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"


def _message(record: logging.LogRecord) -> str:
    try:
        text = str(record.msg)
        return mask(text % _bounded(record.args) if record.args else text)
    except Exception as failure:
        # Else the logging module prints the arguments as they are.
        return f"{text_of(record.msg)} (its arguments cannot be read: {type(failure).__name__})"


def _bounded(arguments: Any) -> Any:
    """The arguments of a message, none of which is long: formatting one of megabytes takes its time."""
    if isinstance(arguments, Mapping):
        return {name: _Bounded.of(value) for name, value in arguments.items()}
    return tuple(map(_Bounded.of, arguments))


class _Bounded:
    """Stands for an exception in a message."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    @classmethod
    def of(cls, value: object) -> object:
        match value:
            case str() | bytes() if len(value) > LONGEST:
                return value[: LONGEST + 1]  # one more than the mask keeps, so that it shows the cut
            case BaseException():
                return cls(value)
            case _:
                return value

    def __str__(self) -> str:
        return text_of(self._error)

    def __repr__(self) -> str:
        return f"{type(self._error).__name__}({text_of(self._error)!r})"


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    error = record.exc_info[1] if record.exc_info else None
    parts = [traceback_of(error).rstrip("\n") if error else mask(record.exc_text or "")]
    parts.append(mask(formatter.formatStack(record.stack_info)) if record.stack_info else "")
    return "\n".join(part for part in parts if part)


def _quoted(name: str, value: object) -> str:
    plain = _masked_field(name, value, _Room())
    text = plain if isinstance(plain, str) else str(plain)
    is_plain = _PLAIN.fullmatch(text) and text == printable(text)
    return text if is_plain else printable_json(json.dumps(text, ensure_ascii=False))


class _Room:
    """How much of a field may still be written."""

    def __init__(self) -> None:
        self.left = LONGEST

    def text(self, value: object) -> str:
        text = text_of(value, max(self.left, 0))
        self.left -= len(text) + _ITEM
        return text

    def first(self, items: Iterable[_T]) -> Iterator[_T]:
        for item in items:
            self.left -= _ITEM
            if self.left <= 0:
                return
            yield item


def _masked_field(name: str, value: object, room: _Room, depth: int = 0) -> object:
    return "***" if name.lower().endswith("password") else _masked(value, room, depth)


def _masked(value: object, room: _Room, depth: int) -> object:
    """The value as JSON has it, without passwords, and not too large."""
    match value:
        case None | bool() | int() | float():
            return value
        case Mapping() if depth < _DEEPEST:
            items = ((room.text(key), item) for key, item in room.first(value.items()))
            return {name: _masked_field(name, item, room, depth + 1) for name, item in items}
        case list() | tuple() if depth < _DEEPEST:
            return [_masked(item, room, depth + 1) for item in room.first(value)]
        case Mapping() | list() | tuple():
            return "…"
        case bytes():
            return room.text(value[: max(room.left, 0)])
        case _:
            return room.text(value)
