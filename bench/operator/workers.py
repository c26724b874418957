"""Many listeners with workers and broker users of their own."""

import asyncio
import time

from bench.operator.site import Ground, Site
from bench.operator.watch import Sight
from bench.report import Figure, Report
from bench.sizes import Sizes
from bench.stage import progress
from outbox_operator.cluster.store import MANAGED
from tests.integration.administrator import management

_MOST_SECONDS = 60.0


async def measure(ground: Ground, sizes: Sizes) -> Report:
    """There is no node, so that no pod ever runs and nobody becomes ready: made is what can be made."""
    count = sizes.resources
    progress(f"{count} listeners with workers and broker users")
    names = [f"worker-{number}" for number in range(count)]
    worker = {"image": "registry.example/shop:1", "replicas": 1}
    async with ground.site() as site, site.operating() as operator, site.watching() as watch:
        before, cpu = await operator.tally(), operator.cpu_seconds
        manifests = [site.listener(name, handler="shop.listeners:handle", worker=worker) for name in names]
        began = time.monotonic()
        await site.apply([site.relay(), *manifests])
        returned = time.monotonic()
        made = await watch.until_all("all listeners are reconciled", names, _is_made)
        tally, cpu = await operator.settled_tally() - before, operator.cpu_seconds - cpu
        there = await _made(site)
    seconds = max(made - returned, 0.0)
    missing = {what: found for what, found in there.items() if found < count}
    print(
        f"    kubectl {returned - began:.1f} s, then {seconds:.1f} s; operator's CPU {cpu:.1f} s; "
        f"{there}, {tally.api_writes:.0f} writes, {tally.broker_calls:.0f} broker calls",
        flush=True,
    )
    return Report(
        [
            Figure(
                f"{count} listeners with workers and users: reconciled",
                f"{seconds:.1f} s after the apply",
                f"missing: {missing}" if missing else f"{returned - began:.1f} s kubectl",
                seconds,
                f"≤ {_MOST_SECONDS:g} s",
                seconds <= _MOST_SECONDS and not missing,
            ),
            Figure(
                "API writes a listener with workers",
                f"{tally.api_writes / count:.2f}",
                f"{tally.api_calls / count:.1f} API calls, {tally.broker_calls / count:.1f} broker calls",
                tally.api_writes / count,
                "",
                True,
            ),
        ]
    )


def _is_made(sight: Sight) -> bool:
    sides = (sight.conditions.get(side, ("", ""))[0] for side in ("TopologyReady", "CredentialsValid"))
    return (
        sight.is_observed
        and "WorkloadAvailable" in sight.conditions
        and all(said == "True" for said in sides)
    )


async def _made(site: Site) -> dict[str, int]:
    """What is there of each kind; of Secrets and users, without those of the relay."""
    users = await asyncio.to_thread(management, site.ground.services, "GET", "users")
    return {
        "Deployments": await site.count("apis/apps/v1/deployments", MANAGED) - 1,
        "Secrets": await site.count("api/v1/secrets", MANAGED) - 1,
        "users": sum(f".{site.name}.worker-" in user["name"] for user in users),
    }
