"""One edit at a time, among many listeners that are idle."""

import random
import time

from bench.operator.site import Site
from bench.operator.watch import Watch
from bench.report import Figure, Report
from bench.stage import progress

_MOST_MS = 300.0


async def measure(site: Site, watch: Watch, names: list[str], edits: int) -> Report:
    progress(f"{edits} edits of one among {len(names)} listeners")
    chosen = random.choices(names, k=edits)  # noqa: S311 - no secret
    taken = sorted([await edited(site, watch, name, number) for number, name in enumerate(chosen)])
    median, most = taken[len(taken) // 2], taken[min(int(len(taken) * 0.95), len(taken) - 1)]
    return Report(
        [
            Figure(
                f"an edit among {len(names)}, until it is observed: p95",
                f"{most:.0f} ms",
                f"p50 {median:.0f} ms, max {taken[-1]:.0f} ms",
                most,
                f"≤ {_MOST_MS:g} ms",
                most <= _MOST_MS,
            )
        ]
    )


async def edited(site: Site, watch: Watch, name: str, number: int) -> float:
    """Milliseconds from sending another binding key until all may see that it was acted on."""
    began = time.monotonic()
    generation = await site.edit(name, {"bindingKeys": [f"{name}.created", f"{name}.edited.{number}"]})
    sight = watch.sights[name]
    seen = await watch.until("an edit is observed", lambda: sight.observed_generation >= generation)
    return (seen - began) * 1e3
