"""`python -m outbox_operator.crds [--check] [FOLDER]`: write the CustomResourceDefinitions, or check them."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from outbox_operator.crds import files


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog=files.COMMAND, description="Write the CustomResourceDefinitions.")
    parser.add_argument("folder", nargs="?", type=Path, default=Path("crds"), help="where they are (crds)")
    parser.add_argument("--check", action="store_true", help="write nothing; fail where one is stale")
    given = parser.parse_args(arguments)
    if not given.check:
        for path in files.write(given.folder):
            sys.stdout.write(f"{path}\n")
        return 0
    if stale := files.stale(given.folder):
        names = ", ".join(map(str, stale))
        sys.stderr.write(f"stale: {names}; run `{files.COMMAND} {given.folder}`\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
