"""Print the tables of docs/benchmarks.md: `python -m bench.page NEW [OLD]`, folders of `bench/results`.

The headline figures are those of NEW; what OLD measured is one more column.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Figures = list[dict[str, Any]]


def main(arguments: Sequence[str]) -> int:
    if len(arguments) not in (1, 2):
        sys.stderr.write("usage: python -m bench.page NEW [OLD], such as bench/results/4.3,18\n")
        return 2
    new, *old = map(Path, arguments)
    for path in sorted(new.glob("*.json")):
        other = _figures(old[0] / path.name) if old else None
        lines = table(_figures(path), other, column=_engines(old[0].name) if old else "")
        sys.stdout.write("\n".join([f"## {path.stem.capitalize()}", "", *lines, "", ""]))
    return 0


def table(figures: Figures, others: Figures | None = None, *, column: str = "") -> list[str]:
    """The lines of a table; with `others`, what they were for the same rows in a last column."""
    rows = [["what", "ours", "baseline", "value", "goal", ""], ["---"] * 6]
    for figure in figures:
        verdict = "" if not figure["goal"] else "ok" if figure["met"] else "missed"
        value = _number(figure["value"])
        rows.append([figure["what"], figure["ours"], figure["baseline"], value, figure["goal"], verdict])
    if others is not None:
        known = {figure["what"]: _short(figure) for figure in others}
        for row, cell in zip(
            rows, [column, "---", *(known.get(row[0], "") for row in rows[2:])], strict=True
        ):
            row.append(cell)
    return [f"| {' | '.join(row)} |" for row in rows]


def _engines(folder: str) -> str:
    rabbitmq, _, postgres = folder.partition(",")
    return f"RabbitMQ {rabbitmq}, Postgres {postgres}"


def _short(figure: dict[str, Any]) -> str:
    """What was measured, and its baseline, in one cell."""
    return f"{figure['ours']} ({figure['baseline']})" if figure["baseline"] else str(figure["ours"])


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _figures(path: Path) -> Figures:
    """None of a part that was not measured."""
    if not path.exists():
        return []
    found: Figures = json.loads(path.read_text())["figures"]
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
