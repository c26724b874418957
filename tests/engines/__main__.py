"""Print the folders that put an engine first on PATH: `python -m tests.engines 4.3,18`."""

import os
import sys

from outbox_cli.local.services import to_stderr
from tests.engines.catalogue import NEWEST, UnknownEngineError, known_versions, parse_engines
from tests.engines.debian import EngineError
from tests.engines.providing import provide


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        to_stderr(f"usage: python -m tests.engines VERSION[,VERSION], of {', '.join(known_versions())}")
        return 2
    try:
        engines = parse_engines(arguments[0])
        folders = provide(engines, os.environ, to_stderr, strict=arguments[0] != NEWEST)
    except (EngineError, UnknownEngineError) as error:
        to_stderr(f"error: {error}")
        return 1
    sys.stdout.write(f"{os.pathsep.join(map(str, folders))}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
