"""What the operator costs while nothing happens, and whether its memory stays where it is."""

import asyncio
import time
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from bench.operator.process import OperatorProcess
from bench.operator.site import Site
from bench.operator.watch import Watch
from bench.report import Chart, Figure, Report
from bench.sizes import Sizes
from bench.stage import progress

_MOST_BROKER_CALLS = 20.0
_MOST_API_CALLS = 60.0
_MOST_CPU = 0.02
_MOST_MEGABYTES = 150.0
_MOST_GROWTH = 1.05
_SETTLING_SECONDS = 35.0
"""Longer than a drift check: what is left to be done is done by then."""


_WARMING = 3
"""Tenths of the rounds that come before the first look at the memory."""


@dataclass(frozen=True)
class Minute:
    """What happens in a minute."""

    served: float
    """Calls that the API server counted, its own included."""
    api_calls: float
    """Those that the operator counted, without its watches."""
    broker_calls: float
    cpu: float
    """The part of a core that the operator used."""
    megabytes: float
    """What it had resident at the end."""


async def own_calls(site: Site, seconds: float) -> float:
    """Calls a minute that the API server makes to itself, before there is an operator."""
    began, before = time.monotonic(), await _served(site)
    await asyncio.sleep(seconds)
    # One of them is the look itself.
    return (await _served(site) - before - 1) / (time.monotonic() - began) * 60


async def measure(site: Site, operator: OperatorProcess, own: float, sizes: Sizes) -> Report:
    """With all resources settled; `own` is how often the API server calls itself."""
    await asyncio.sleep(_SETTLING_SECONDS)
    progress(f"idle for {sizes.idle_seconds:g} s")
    minute = await _minute(site, operator, sizes.idle_seconds)
    calls = minute.served - own
    return Report(
        [
            Figure(
                f"idle with {sizes.resources}: broker calls a minute",
                f"{minute.broker_calls:.1f}",
                "",
                minute.broker_calls,
                f"≤ {_MOST_BROKER_CALLS:g}",
                minute.broker_calls <= _MOST_BROKER_CALLS,
            ),
            Figure(
                "API calls a minute",
                f"{calls:.1f} at the API server",
                f"{minute.api_calls:.1f} by its own count, without the watches",
                calls,
                f"≤ {_MOST_API_CALLS:g}",
                calls <= _MOST_API_CALLS,
            ),
            Figure(
                "CPU while idle",
                f"{minute.cpu:.2%} of a core",
                "",
                minute.cpu * 100,
                f"< {_MOST_CPU:.0%}",
                minute.cpu < _MOST_CPU,
            ),
            Figure(
                f"memory with {sizes.resources}",
                f"{minute.megabytes:.0f} MB",
                "",
                minute.megabytes,
                f"< {_MOST_MEGABYTES:g} MB",
                minute.megabytes < _MOST_MEGABYTES,
            ),
        ]
    )


async def lives(site: Site, watch: Watch, operator: OperatorProcess, rounds: int) -> Report:
    """Listeners that come and go with their queues, each of a name that was never there before."""
    progress(f"{rounds:,} listeners created and deleted")
    together = max(rounds // 10, 10)
    # Before the first look: what is allocated once, and what is kept for a while, is there by then.
    warm = _WARMING * together
    for first in range(0, warm, together):
        await _come_and_go(site, watch, range(first, first + together))
    await asyncio.sleep(_SETTLING_SECONDS)
    seen = [(0.0, operator.megabytes)]
    for first in range(warm, warm + rounds, together):
        await _come_and_go(site, watch, range(first, first + together))
        seen.append((float(first + together - warm), operator.megabytes))
    await asyncio.sleep(_SETTLING_SECONDS)
    early, last = seen[0][1], operator.megabytes
    growth = last / early
    return Report(
        [
            Figure(
                f"memory after {rounds:,} created and deleted",
                f"{last:.1f} MB",
                f"{early:.1f} MB before",
                growth,
                f"≤ {_MOST_GROWTH:g} ×",
                growth <= _MOST_GROWTH,
            )
        ],
        [Chart("operator's memory, MB", "listeners created and deleted", {"resident": seen})],
    )


async def _come_and_go(site: Site, watch: Watch, numbers: range) -> None:
    """All at once, for a queue goes only when it was seen empty for a while."""
    path, names = site.path("outboxlisteners"), [f"life-{number}" for number in numbers]
    for name in names:
        await site.request("POST", path, site.listener(name, deletionPolicy="Delete"))
    await watch.until_all("they are ready", names, lambda sight: sight.is_ready)
    for name in names:
        await site.request("DELETE", f"{path}/{name}")
    await watch.until_gone(names)


async def _minute(site: Site, operator: OperatorProcess, seconds: float) -> Minute:
    began, cpu = time.monotonic(), operator.cpu_seconds
    before, served = await operator.tally(), await _served(site)
    await asyncio.sleep(seconds)
    done, served = await operator.tally() - before, await _served(site) - served - 1
    passed = time.monotonic() - began
    return Minute(
        served / passed * 60,
        done.api_calls / passed * 60,
        done.broker_calls / passed * 60,
        (operator.cpu_seconds - cpu) / passed,
        operator.megabytes,
    )


async def _served(site: Site) -> float:
    """How many calls the API server has answered, whoever made them."""
    async with site.session.get("/metrics") as response:
        text = await response.text()
    lines = "\n".join(line for line in text.splitlines() if line.startswith("apiserver_request_total{"))
    families = text_string_to_metric_families(f"# TYPE apiserver_request_total counter\n{lines}\n")
    return sum(sample.value for family in families for sample in family.samples)
