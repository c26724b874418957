"""Edits in one namespace, while another one is full of relays whose servers never answer."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench.operator.editing import edited
from bench.operator.site import Ground, Manifest, Site
from bench.report import Figure, Report
from bench.sizes import Sizes
from bench.stage import progress

_LISTENERS = 20
_MOST_TIMES = 2.0
_WARM_UP_SECONDS = 20.0


async def measure(ground: Ground, sizes: Sizes) -> Report:
    progress(f"edits beside {sizes.broken} broken relays of another namespace")
    async with (
        ground.site() as site,
        ground.site() as other,
        _black_hole() as port,
        site.operating(other.name),
    ):
        alone = await _p95(site, sizes.edits)
        await other.apply(_broken(other, port, sizes.broken))
        await asyncio.sleep(_WARM_UP_SECONDS)
        beside = await _p95(site, sizes.edits)
    times = beside / alone
    return Report(
        [
            Figure(
                f"an edit beside {sizes.broken} broken relays of another namespace: p95",
                f"{beside:.0f} ms",
                f"{alone:.0f} ms without them",
                times,
                f"≤ {_MOST_TIMES:g} ×",
                times <= _MOST_TIMES,
            )
        ]
    )


async def _p95(site: Site, edits: int) -> float:
    """Milliseconds until an edit is observed, of listeners that are made for it."""
    stamp = time.monotonic_ns()
    names = [f"listener-{stamp}-{number}" for number in range(_LISTENERS)]
    async with site.watching() as watch:
        await site.apply([site.relay(), *map(site.listener, names)])
        await watch.until_all("all are ready", names, lambda sight: sight.is_ready)
        taken = sorted(
            [await edited(site, watch, names[number % _LISTENERS], number) for number in range(edits)]
        )
    return taken[min(int(len(taken) * 0.95), len(taken) - 1)]


def _broken(site: Site, port: int, count: int) -> list[Manifest]:
    """Relays whose database takes connections and says nothing."""
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "black-hole", "namespace": site.name},
        "stringData": {"uri": f"postgresql://a:b@127.0.0.1:{port}/x"},
    }
    relays = []
    for number in range(count):
        relay = site.relay()
        relay["metadata"]["name"] = f"broken-{number}"
        relay["spec"]["database"]["secretRef"] = {"name": "black-hole"}
        relays.append(relay)
    return [secret, *relays]


@asynccontextmanager
async def _black_hole() -> AsyncIterator[int]:
    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(swallow, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
