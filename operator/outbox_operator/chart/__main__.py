"""`python -m outbox_operator.chart [--check] [FOLDER]`: write what is made of the Helm chart, or check it."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from outbox_operator.chart import files
from outbox_operator.chart.readme import MarkerError

_CHART = Path("charts/outbox-operator")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog=files.COMMAND, description="Write what is made of the Helm chart.")
    parser.add_argument("folder", nargs="?", type=Path, default=_CHART, help=f"where the chart is ({_CHART})")
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a file is stale")
    given = parser.parse_args(arguments)
    try:
        return _check(given.folder) if given.check else _write(given.folder)
    except MarkerError as error:
        sys.stderr.write(f"{error}\n")
        return 1


def _write(chart: Path) -> int:
    for path in files.write(chart):
        sys.stdout.write(f"{path}\n")
    return 0


def _check(chart: Path) -> int:
    if stale := files.stale(chart):
        names = ", ".join(map(str, stale))
        sys.stderr.write(f"stale: {names}; run `{files.COMMAND} {chart}`\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
