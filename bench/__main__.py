"""`python -m bench`: measure everything on private services and print one table."""

import argparse
import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from bench import backlog, consuming, draining, emitting, importing, latency, pipeline, processes, redriving
from bench.operator import figures as operator_figures
from bench.plot import svg
from bench.report import Report, print_table, write_json
from bench.sizes import QUICK, Sizes
from bench.stage import Stage
from outbox_cli.local import Services, start

RESULTS = Path(__file__).parent / "results"
_LOOK_SECONDS = 2.0

Measurement: TypeAlias = Callable[[Stage, Sizes], Awaitable[Report]]

_PARTS: dict[str, tuple[Measurement, ...]] = {
    "emit": (),
    "relay": (draining.measure, latency.to_queue, backlog.measure),
    "worker": (consuming.measure, latency.to_handler, pipeline.measure),
    "redrive": (redriving.measure,),
    "operator": (),
}
"""What is measured on a table and a queue; emit needs neither, and the operator more than these."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench", description="Measure the project's promises.")
    parser.add_argument("part", nargs="?", choices=tuple(_PARTS), help="measure only this")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    arguments = parser.parse_args()
    sizes = QUICK if arguments.quick else Sizes()
    report = Report(others=processes.busy_part(_LOOK_SECONDS))
    parts = [arguments.part] if arguments.part else list(_PARTS)
    if "emit" in parts:
        _emit(report)
    for measurements in filter(None, (_PARTS[part] for part in parts)):
        # On services of its own: a broker that has just had millions of messages is busy tidying up.
        with start() as services:
            asyncio.run(_measure(report, measurements, services, sizes))
    if "operator" in parts:
        report.add(operator_figures.measure(sizes))
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


async def _measure(
    report: Report, measurements: Sequence[Measurement], services: Services, sizes: Sizes
) -> None:
    async with Stage.opened(services) as stage:
        for measure in measurements:
            report.add(await measure(stage, sizes))


if __name__ == "__main__":
    sys.exit(main())
