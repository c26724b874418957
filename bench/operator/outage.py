"""A broker that goes away for a while: what is said meanwhile, and how soon all is well when it is back."""

import asyncio
import time

from bench.operator.site import Site
from bench.operator.watch import Sight, Watch
from bench.report import Figure, Report
from bench.stage import progress

_MOST_SECONDS = 10.0


async def measure(site: Site, watch: Watch, names: list[str], seconds: float) -> Report:
    rabbitmq = site.ground.services.rabbitmq
    progress(f"RabbitMQ stopped for {seconds:g} s")
    await asyncio.to_thread(rabbitmq.stop)
    stopped = time.monotonic()
    told = await watch.until_all("all say that the broker is away", names, _tells) - stopped
    await asyncio.sleep(max(stopped + seconds - time.monotonic(), 0.0))
    truthful = sum(_tells(watch.sights[name]) for name in names)
    progress("RabbitMQ started again")
    await asyncio.to_thread(rabbitmq.start)
    back = time.monotonic()
    ready = await watch.until_all("all are ready again", names, lambda sight: sight.is_ready)
    settled = max(ready - back, 0.0)
    return Report(
        [
            Figure(
                f"not ready, Unreachable, after {seconds:g} s of outage",
                f"{truthful} of {len(names)}",
                f"all of them {told:.1f} s after it had stopped",
                truthful,
                f"{len(names)}",
                truthful == len(names),
            ),
            Figure(
                "all Ready again after the broker is back",
                f"{settled:.1f} s",
                "",
                settled,
                f"≤ {_MOST_SECONDS:g} s",
                settled <= _MOST_SECONDS,
            ),
        ]
    )


def _tells(sight: Sight) -> bool:
    return sight.conditions.get("Ready") == ("False", "Unreachable")
