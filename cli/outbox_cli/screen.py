"""What people see: tables and fields as plain text, or the same as JSON for programs."""

import codecs
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from enum import StrEnum
from io import TextIOWrapper
from typing import Any, TypeAlias

from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from outbox_core.printable import printable, printable_json, printable_lines

_WIDE = 1_000_000
"""Columns of an output that is no terminal: whoever reads it wants the whole text."""


_GAP = "   "
"""Between two columns."""
_SYMBOLS = {"…": "...", "✓": "+", "✗": "x", "–": "-", "→": "->"}
"""What stands for a symbol of ours in an encoding that does not have it."""


class Format(StrEnum):
    """How to print."""

    TABLE = "table"
    JSON = "json"


def degrade_symbols() -> None:
    """Have stdout and stderr write what their encoding does not have in another way, instead of failing."""
    codecs.register_error("outbox.readable", _readable)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="outbox.readable")


def _readable(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    return (
        "".join(_SYMBOLS.get(each) or each.encode("ascii", "backslashreplace").decode() for each in text),
        error.end,
    )


def console(*, stderr: bool = False) -> Console:
    """Where to print; without colours and line breaks of its own where that is no terminal."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(file=stream, highlight=False, width=None if stream.isatty() else _WIDE)


def show_json(value: object) -> None:
    """Print a value of dictionaries, lists, dataclasses, moments and texts."""
    print(_dumped(value, indent=2))


def json_line(value: object) -> str:
    """The same as one line of text."""
    return _dumped(value)


class TableRows:
    """Rows below their headings, printed as they come; the first ones added set the widths of the columns."""

    def __init__(self, headings: Sequence[str]) -> None:
        self._headings = headings
        self._widths: list[int] = []
        self._out = console()

    def add(self, rows: Iterable[Sequence[object]]) -> None:
        texts = [[one_line(str(cell)) for cell in row] for row in rows]
        if texts and not self._widths:
            self._widths = [max(map(cell_len, column)) for column in zip(self._headings, *texts, strict=True)]
            heading = self._line(self._headings)
            self._out.print(Text(heading, style="bold"), soft_wrap=True)
        self._out.file.writelines(f"{self._line(text)}\n" for text in texts)

    def end(self) -> None:
        self._out.file.flush()

    def _line(self, cells: Sequence[str]) -> str:
        padded = (
            cell + " " * (width - cell_len(cell)) for cell, width in zip(cells, self._widths, strict=True)
        )
        return _GAP.join(padded).rstrip()


class JsonRows:
    """A list of values, printed as they come."""

    def __init__(self) -> None:
        self._separator = "[\n"

    def add(self, rows: Iterable[object]) -> None:
        for row in rows:
            text = _dumped(row, indent=2).replace("\n", "\n  ")
            sys.stdout.write(f"{self._separator}  {text}")
            self._separator = ",\n"

    def end(self) -> None:
        sys.stdout.write("[]\n" if self._separator == "[\n" else "\n]\n")
        sys.stdout.flush()


Rows: TypeAlias = TableRows | JsonRows


def show_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows below their headings."""
    table = TableRows(headings)
    table.add(rows)
    table.end()


def show_fields(fields: Mapping[str, object]) -> None:
    """Print what is known of one thing; a text of several lines is indented below its name."""
    present = {name: str(value) for name, value in fields.items() if value not in (None, "")}
    width = max(map(len, present), default=0) + 2
    out = console()
    for name, value in present.items():
        label = f"{printable(name)}:"
        if "\n" in value:
            out.print(Text(label, style="bold"))
            for line in value.rstrip("\n").split("\n"):
                out.print(Text(f"  {printable(line)}"), soft_wrap=True)
        else:
            out.print(Text.assemble((label.ljust(width), "bold"), printable(value)), soft_wrap=True)


def say(text: str) -> None:
    """Print a sentence."""
    console().print(Text(printable_lines(text)), soft_wrap=True)


def warn(text: str) -> None:
    """Print a problem on stderr."""
    print(f"outbox: {printable(text)}", file=sys.stderr, flush=True)


def one_line(text: str) -> str:
    """The text for a cell of a table."""
    return printable(" ".join(text.split("\n")))


@contextmanager
def progress(title: str, total: int, *, quiet: bool) -> Iterator[Callable[[int], None]]:
    """A bar on stderr that is told how many of `total` are done; none where stderr is no terminal."""
    out = console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=out, transient=True, disable=quiet or not out.is_terminal) as bar:
        task = bar.add_task(title, total=total)
        yield lambda done: bar.update(task, completed=done)


def confirmed(question: str) -> bool | None:
    """Ask on stderr, and read yes or no; None where nobody is there to answer."""
    print(f"{printable(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer:
        print(file=sys.stderr)
        return None
    return answer.strip().lower() in ("y", "yes")


def moment(value: datetime | None) -> str | None:
    """A moment as text, in UTC."""
    if value is None:
        return None
    # What asyncpg makes of Postgres' infinity has no time zone.
    if value.tzinfo is None:
        return "infinity" if value > datetime(5000, 1, 1) else "-infinity"  # noqa: DTZ001
    return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def age(seconds: float) -> str:
    """A duration in its largest unit: `45s`, `12m`, `3h`, `5d`."""
    if not math.isfinite(seconds):
        return "infinity" if seconds > 0 else "0s"
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{seconds // length:.0f}{unit}"
    return f"{max(seconds, 0) // 1:.0f}s"


def _dumped(value: object, indent: int | None = None) -> str:
    # An encoding without all of Unicode needs JSON's own escapes.
    is_unicode = (sys.stdout.encoding or "utf-8").lower().startswith("utf")
    text = json.dumps(value, indent=indent, ensure_ascii=not is_unicode, default=_plain)
    return printable_json(text)


def _plain(value: Any) -> object:
    if isinstance(value, datetime):
        return moment(value)
    if isinstance(value, bytes | bytearray):
        return value.decode(errors="backslashreplace")
    if hasattr(value, "__dataclass_fields__"):
        return asdict(value)
    return str(value)
