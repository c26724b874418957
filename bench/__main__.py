"""`python -m bench`: measure everything on private services and print one table."""

import argparse
import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import psycopg

from bench import (
    backlog,
    consuming,
    draining,
    emitting,
    guest_bystander,
    guest_claims,
    guest_notify,
    guest_table,
    hostile,
    importing,
    latency,
    pipeline,
    processes,
    redriving,
)
from bench.operator import figures as operator_figures
from bench.plot import svg
from bench.report import Figure, Report, print_table, write_json
from bench.sizes import LONG_GROWTH, QUICK, Sizes
from bench.stage import Stage
from outbox_cli.local import Services, start
from tests.engines.catalogue import Engines
from tests.integration.administrator import broker_version

RESULTS = Path(__file__).parent / "results"
_LOOK_SECONDS = 2.0

Measurement: TypeAlias = Callable[[Stage, Sizes], Awaitable[Report]]

_PARTS: dict[str, tuple[Measurement, ...]] = {
    "emit": (),
    "relay": (draining.measure, latency.to_queue, backlog.measure),
    "worker": (consuming.measure, latency.to_handler, pipeline.measure),
    "redrive": (redriving.measure,),
    "guest": (
        guest_notify.commits,
        guest_notify.idling,
        guest_notify.steady,
        guest_claims.dead_rows,
        guest_claims.waiting_keys,
        guest_claims.stuck_keys,
        guest_bystander.latency,
        guest_table.growth,
    ),
    "operator": (),
}
"""What is measured on a table and a queue; emit needs neither, and the operator more than these."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench", description="Measure the project's promises.")
    parser.add_argument("part", nargs="?", choices=tuple(_PARTS), help="measure only this")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    parser.add_argument(
        "--long", action="store_true", help="watch the table's size over 10,000,000 messages (half an hour)"
    )
    arguments = parser.parse_args()
    sizes = QUICK if arguments.quick else Sizes()
    if arguments.long:
        sizes = replace(sizes, grown=LONG_GROWTH)
    others = processes.busy_part(_LOOK_SECONDS)
    engines = _engines()
    parts = [arguments.part] if arguments.part else list(_PARTS)
    reports = {part: _measured(part, sizes) for part in parts}
    print()
    print_table([figure for report in reports.values() for figure in report.figures])
    print(f"\nengines {engines}, {os.cpu_count()} cores, {others:.0%} of them busy before the run")
    # Figures of small sizes must not be taken for the real ones.
    if not arguments.quick:
        folder = RESULTS / str(engines)
        for part, report in reports.items():
            report.others = others
            write_json(report, folder / f"{part}.json")
            (folder / f"{part}.svg").write_text(svg(report.charts))
    return 0


def _engines() -> Engines:
    """The versions of the services, by their own word."""
    with start() as services:
        with psycopg.connect(services.postgres.url) as connection:
            postgres = connection.info.server_version // 10_000
        major, minor = broker_version(services)
    return Engines(f"{major}.{minor}", str(postgres))


def _measured(part: str, sizes: Sizes) -> Report:
    match part:
        case "emit":
            return Report(_emit())
        case "operator":
            return operator_figures.measure(sizes)
        case _:
            # On services of its own: a broker that has just had millions of messages is busy tidying up.
            with start() as services:
                return asyncio.run(_measure(_PARTS[part], services, sizes))


def _emit() -> list[Figure]:
    print("measuring import …", flush=True)
    figures = importing.measure()
    print("measuring hostile texts …", flush=True)
    figures += hostile.measure()
    with start(rabbitmq=False) as services:
        print("measuring emit …", flush=True)
        return [*figures, *asyncio.run(emitting.measure(services.postgres.url))]


async def _measure(measurements: Sequence[Measurement], services: Services, sizes: Sizes) -> Report:
    report = Report()
    async with Stage.opened(services) as stage:
        for measure in measurements:
            report.add(await measure(stage, sizes))
    return report


if __name__ == "__main__":
    sys.exit(main())
