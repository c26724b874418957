"""The two ways to see a project run: one live screen in a terminal, or a line for each change elsewhere."""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict
from types import TracebackType
from typing import Self, TypeAlias, assert_never

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from outbox_cli import screen
from outbox_cli.dev.board import HEADINGS, Board, Row
from outbox_cli.dev.happenings import Happening, Kind
from outbox_core.printable import printable
from outbox_operator.conditions import Finding
from outbox_operator.resources.condition import ConditionStatus, ConditionType

_MOST_NEWS = 200
_FEWEST_NEWS = 3
_STYLES = {
    Kind.HANDLED: "green",
    Kind.RETRIED: "yellow",
    Kind.DEAD_LETTERED: "red",
    Kind.TROUBLE: "red",
    Kind.SAID: "dim",
}
_READY_STYLES = {"True": "green", "False": "red"}
_MARKS = {ConditionStatus.TRUE: "✓", ConditionStatus.FALSE: "✗", ConditionStatus.UNKNOWN: "?"}


class PlainScreen:
    """A line for each change, as text or as JSON."""

    def __init__(self, *, as_json: bool = False) -> None:
        self._as_json = as_json
        self._shown: dict[str, tuple[str, str]] = {}
        self._wrong: dict[tuple[str, ConditionType], str] = {}
        self._complaints: tuple[str, ...] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is left to do."""

    def note(self, line: str) -> None:
        """Print what a person may want to copy."""
        self._print({"note": line}, line)

    def tell(self, happening: Happening) -> None:
        """Print what has happened."""
        self._print(asdict(happening), f"{happening.source} {happening.kind}: {happening.text}")

    def show(self, board: Board) -> None:
        """Print what is another than before."""
        for row in board.rows:
            for condition in row.conditions:
                if self._is_turn(row.resource, condition):
                    self._print({"resource": row.resource, **asdict(condition)}, _turn(row, condition))
            if self._shown.get(row.resource) != (row.ready, row.reason):
                self._shown[row.resource] = row.ready, row.reason
                self._print(asdict(row), _sentence(row))
        for complaint in board.complaints if board.complaints != self._complaints else ():
            self._print({"complaint": complaint}, complaint)
        self._complaints = board.complaints

    def _is_turn(self, resource: str, condition: Finding) -> bool:
        """Whether it has become wrong, for this reason, or is well again."""
        side = resource, condition.type
        match condition.status:
            case ConditionStatus.TRUE:
                return self._wrong.pop(side, None) is not None
            case ConditionStatus.FALSE:
                before, self._wrong[side] = self._wrong.get(side), condition.reason
                return before != condition.reason
            case ConditionStatus.UNKNOWN:
                # Nobody could look; Ready says why.
                return False
            case _:
                assert_never(condition.status)

    def _print(self, value: dict[str, object], text: str) -> None:
        print(screen.json_line(value) if self._as_json else printable(text), flush=True)


class LiveScreen:
    """The resources and the last news, drawn anew whenever something changes."""

    def __init__(self, title: str, console: Console) -> None:
        self._title = title
        self._console = console
        self._board = Board()
        self._news: deque[tuple[str, Happening]] = deque(maxlen=_MOST_NEWS)
        self._live = Live(self._drawn(), console=console, auto_refresh=False, vertical_overflow="crop")

    def __enter__(self) -> Self:
        self._live.start(refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def note(self, line: str) -> None:
        """Print it above everything, where it stays."""
        self._console.print(Text(printable(line)), soft_wrap=True)

    def tell(self, happening: Happening) -> None:
        """Put it under the last news."""
        self._news.append((time.strftime("%H:%M:%S"), happening))

    def show(self, board: Board) -> None:
        """Draw it."""
        self._board = board
        self._live.update(self._drawn(), refresh=True)

    def _drawn(self) -> RenderableType:
        return picture(self._title, self._board, list(self._news), self._console)


AnyScreen: TypeAlias = PlainScreen | LiveScreen


def picture(
    title: str, board: Board, news: Sequence[tuple[str, Happening]], console: Console
) -> RenderableType:
    """All that fits: the resources, what is wrong, and as many of the last news as there is room for."""
    above = Group(
        Text(title, style="bold"), _table(board.rows), Text(), _conditions(board.rows), *_troubles(board)
    )
    room = max(console.height - len(console.render_lines(above)) - 1, _FEWEST_NEWS)
    return Group(above, *map(_line, news[-room:]))


def _table(rows: Sequence[Row]) -> Table:
    table = Table(*HEADINGS, box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for row in rows:
        resource, ready, *others = row.cells
        table.add_row(
            Text(printable(resource)),
            Text(printable(ready), style=_READY_STYLES.get(ready, "yellow")),
            *(Text(printable(each)) for each in others),
        )
    return table


def _conditions(rows: Sequence[Row]) -> Table:
    table = Table(
        "RESOURCE", "CONDITIONS", box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold"
    )
    for row in rows:
        table.add_row(Text(printable(row.resource)), Columns(map(_marked, row.conditions), padding=(0, 2)))
    return table


def _marked(condition: Finding) -> Text:
    """How it is, and why where it is not well."""
    reason = "" if condition.status is ConditionStatus.TRUE else f" {condition.reason}"
    shown = f"{_MARKS[condition.status]}{printable(reason)}"
    return Text.assemble(f"{condition.type} ", (shown, _READY_STYLES.get(condition.status, "yellow")))


def _troubles(board: Board) -> list[Text]:
    """What a person has to mend."""
    wrong = [f"{row.resource}: {row.message}" for row in board.rows if row.message]
    lines = [Text(screen.one_line(text), style="red") for text in (*board.complaints, *wrong)]
    return [Text(), *lines, Text()] if lines else [Text()]


def _line(news: tuple[str, Happening]) -> Text:
    at, happening = news
    source, text = happening.source.rpartition("/")[2], " ".join(happening.text.split("\n"))
    line = Text(printable(f"{at} {source} {happening.kind}: {text}"), no_wrap=True)
    line.stylize(_STYLES[happening.kind])
    line.overflow = "ellipsis"
    return line


def _turn(row: Row, condition: Finding) -> str:
    # What the line about Ready says is not said twice.
    is_said = condition.status is ConditionStatus.TRUE or condition.message == row.message
    why = "" if is_said else f": {condition.message}"
    return f"{row.resource} {condition.type}={condition.status} {condition.reason}{why}"


def _sentence(row: Row) -> str:
    why = f": {row.message}" if row.message else ""
    return f"{row.resource} Ready={row.ready} {row.reason}{why}"
