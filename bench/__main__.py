"""`python -m bench`: measure everything on private services and print one table."""

import argparse
import asyncio
import os
import sys
from pathlib import Path

from bench import backlog, draining, emitting, importing, latency, processes
from bench.harness import QUICK, Sizes, Stage
from bench.plot import svg
from bench.report import Report, print_table, write_json
from outbox_cli.local import Services, start

RESULTS = Path(__file__).parent / "results"
_LOOK_SECONDS = 2.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench", description="Measure the project's promises.")
    parser.add_argument("part", nargs="?", choices=("emit", "relay"), help="measure only this")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    arguments = parser.parse_args()
    report = Report(others=processes.busy_part(_LOOK_SECONDS))
    if arguments.part != "relay":
        _emit(report)
    if arguments.part != "emit":
        with start() as services:
            asyncio.run(_relay(report, services, QUICK if arguments.quick else Sizes()))
    print()
    print_table(report.figures)
    print(f"\n{os.cpu_count()} cores, {report.others:.0%} of them busy with other things before the run")
    # Figures of small sizes must not be taken for the real ones.
    if not arguments.quick:
        write_json(report, RESULTS / "latest.json")
        (RESULTS / "latest.svg").write_text(svg(report.charts))
    return 0


def _emit(report: Report) -> None:
    print("measuring import …", flush=True)
    report.figures += importing.measure()
    with start(rabbitmq=False) as services:
        print("measuring emit …", flush=True)
        report.figures += asyncio.run(emitting.measure(services.postgres.url))


async def _relay(report: Report, services: Services, sizes: Sizes) -> None:
    print("measuring the relay …", flush=True)
    async with Stage.opened(services) as stage:
        for part in (draining, latency, backlog):
            measured = await part.measure(stage, sizes)
            report.figures += measured.figures
            report.charts += measured.charts


if __name__ == "__main__":
    sys.exit(main())
