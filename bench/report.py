"""The one table that a run prints, and the JSON that it leaves behind."""

import json
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
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


def print_table(figures: Sequence[Figure]) -> None:
    header = ("what", "ours", "baseline", "value", "goal", "")
    rows = [header]
    for figure in figures:
        verdict = "ok" if figure.met else "MISSED"
        rows.append((figure.what, figure.ours, figure.baseline, f"{figure.value:.2f}", figure.goal, verdict))
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    for number, row in enumerate(rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        if number == 0:
            print("  ".join("-" * width for width in widths))


def write_json(figures: Sequence[Figure], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    machine = {"python": platform.python_version(), "system": platform.platform(terse=True)}
    path.write_text(
        json.dumps({"machine": machine, "figures": [asdict(f) for f in figures]}, indent=2) + "\n"
    )
