"""`python -m bench`: measure everything on private services and print one table."""

import asyncio
import sys
from pathlib import Path

from bench import emitting, importing
from bench.report import print_table, write_json
from outbox_cli.local import start

RESULTS = Path(__file__).parent / "results" / "latest.json"


def main() -> int:
    print("measuring import …", flush=True)
    figures = importing.measure()
    with start(rabbitmq=False) as services:
        print("measuring emit …", flush=True)
        figures += asyncio.run(emitting.measure(services.postgres.url))
    print()
    print_table(figures)
    write_json(figures, RESULTS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
