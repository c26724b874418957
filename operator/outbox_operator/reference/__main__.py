"""`python -m outbox_operator.reference [--check] [FILE]`: write the resources' reference, or check it."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from outbox_operator.reference import page

_FILE = Path("docs/reference.md")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog=page.COMMAND, description="Write the reference of the resources.")
    parser.add_argument("file", nargs="?", type=Path, default=_FILE, help=f"where it is ({_FILE})")
    parser.add_argument("--check", action="store_true", help="write nothing; fail where it is stale")
    given = parser.parse_args(arguments)
    file: Path = given.file
    if file.exists() and file.read_text(encoding="utf-8") == page.text():
        return 0
    if given.check:
        sys.stderr.write(f"stale: {file}; run `{page.COMMAND} {file}`\n")
        return 1
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(page.text(), encoding="utf-8")
    sys.stdout.write(f"{file}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
