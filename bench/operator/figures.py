"""All measurements of the operator, one after the other on one control plane and one broker."""

import asyncio
import time

from bench.operator import applying, editing, idling, neighbours, outage, workers
from bench.operator.site import Ground
from bench.report import Report
from bench.sizes import Sizes
from bench.stage import progress
from outbox_cli.local import start
from outbox_cli.local.services import to_stderr
from outbox_operator.crds import DEFINITIONS
from tests.operator.control_plane.api import Api
from tests.operator.control_plane.server import control_plane

_OWN_SECONDS = 30.0
_DEFINED_SECONDS = 30.0
_POLL_SECONDS = 0.05


def measure(sizes: Sizes) -> Report:
    # Without the environment's services: the broker is stopped on the way.
    with start(environment={}) as services, control_plane(to_stderr) as plane:
        api = Api(plane)
        _define_resources(api)
        return asyncio.run(_measure(Ground(api, services), sizes))


def _define_resources(api: Api) -> None:
    for definition in DEFINITIONS:
        api.define(definition)
    deadline = time.monotonic() + _DEFINED_SECONDS
    while not all(api.is_served(definition) for definition in DEFINITIONS):
        if time.monotonic() > deadline:
            raise TimeoutError("the custom resources were defined, and are not served")
        time.sleep(_POLL_SECONDS)


async def _measure(ground: Ground, sizes: Sizes) -> Report:
    report = Report()
    for measure_part in (applying.measure, workers.measure, _many, neighbours.measure):
        report.add(await measure_part(ground, sizes))
    return report


async def _many(ground: Ground, sizes: Sizes) -> Report:
    """What is measured on many listeners that are there already."""
    report = Report()
    names = [f"listener-{number}" for number in range(sizes.resources)]
    async with ground.site() as site:
        own = await idling.own_calls(site, min(_OWN_SECONDS, sizes.idle_seconds))
        async with site.operating() as operator, site.watching() as watch:
            progress(f"{sizes.resources} listeners made ready")
            await site.apply([site.relay(), *map(site.listener, names)])
            await watch.until_all("all are ready", names, lambda sight: sight.is_ready)
            report.add(_shown(await editing.measure(site, watch, names, sizes.edits)))
            report.add(_shown(await idling.measure(site, operator, own, sizes)))
            report.add(_shown(await idling.lives(site, watch, operator, sizes.lives)))
            report.add(_shown(await outage.measure(site, watch, names, sizes.outage_seconds)))
    return report


def _shown(report: Report) -> Report:
    """What was measured, told at once: the whole of it takes a while."""
    for figure in report.figures:
        print(f"    {figure.what}: {figure.ours} ({figure.baseline or figure.goal})", flush=True)
    return report
