"""The one table that a run prints, and what it leaves behind: JSON, and the charts' series in it."""

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Figure:
    """One measured row."""

    what: str
    """What was measured."""
    ours: str
    """Our result, with its unit."""
    baseline: str
    """What it is compared with, measured in the same run; empty where the goal is absolute."""
    value: float
    """The number the goal speaks of."""
    goal: str
    """The goal, as a person reads it."""
    met: bool
    """Whether the number reaches the goal."""


@dataclass(frozen=True)
class Chart:
    """Points to draw: as bars where `lines` has one point each, as lines otherwise."""

    title: str
    """What is shown, with the unit of y."""
    x: str
    """What the x axis is; empty for bars."""
    lines: dict[str, list[tuple[float, float]]]
    """The points of each line, by its label."""


@dataclass
class Report:
    """What a run has measured."""

    figures: list[Figure] = field(default_factory=list)
    charts: list[Chart] = field(default_factory=list)
    others: float = 0.0
    """The part of the machine's cores that somebody else's processes had before the run."""

    def add(self, measured: "Report") -> None:
        """What else was measured."""
        self.figures += measured.figures
        self.charts += measured.charts


def print_table(figures: Sequence[Figure]) -> None:
    header = ("what", "ours", "baseline", "value", "goal", "")
    rows = [header]
    for figure in figures:
        verdict = "" if not figure.goal else "ok" if figure.met else "MISSED"
        rows.append((figure.what, figure.ours, figure.baseline, f"{figure.value:.2f}", figure.goal, verdict))
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    for number, row in enumerate(rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        if number == 0:
            print("  ".join("-" * width for width in widths))


def write_json(report: Report, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    machine = {
        "python": platform.python_version(),
        "system": platform.platform(terse=True),
        "cores": os.cpu_count(),
        "busy_with_other_things": report.others,
    }
    figures, charts = ([asdict(each) for each in group] for group in (report.figures, report.charts))
    path.write_text(json.dumps({"machine": machine, "figures": figures, "charts": charts}, indent=2) + "\n")
