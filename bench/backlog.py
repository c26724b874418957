"""Whether a large backlog slows the relay down, and what moving it does to the relay's memory."""

import time

from bench import processes
from bench.ratio import faster
from bench.report import Chart, Figure, Report
from bench.sizes import Sizes
from bench.stage import OURS, Drain, Stage, progress

_LARGE, _SMALL = "outbox_large", "outbox_small"
_MEGABYTE = 1_000_000
_MOST_MEGABYTES = 90


async def measure(stage: Stage, sizes: Sizes) -> Report:
    progress(f"filling a table with {sizes.backlog:,} messages")
    await stage.clear(_LARGE)
    await stage.fill(sizes.backlog, table=_LARGE)
    large: list[Drain] = []
    small: list[Drain] = []
    # Each of these takes about a second, so there can be many.
    rounds = sizes.rounds * 4
    for number in range(rounds):
        progress(f"draining with {sizes.backlog:,} and with {sizes.few:,} pending, {number + 1} of {rounds}")
        await stage.clear(_SMALL)
        await stage.fill(sizes.few, table=_SMALL)
        small.append(await stage.drain(OURS, sizes.few, table=_SMALL))
        await stage.queue.clear()
        large.append(await stage.drain(OURS, sizes.few, table=_LARGE))
    memory = await _memory(stage, sizes)
    steady = faster(f"rate with {sizes.backlog:,} pending", large, small, f"with {sizes.few:,}", 0.9)
    return Report([steady, *memory.figures], memory.charts)


async def _memory(stage: Stage, sizes: Sizes) -> Report:
    """One relay on a table of its own size, looked at as it goes."""
    progress(f"moving {sizes.remembered:,} messages and watching the relay's memory")
    await stage.clear(_LARGE)
    await stage.fill(sizes.remembered, table=_LARGE)
    seen: list[tuple[float, float]] = []
    pace: list[tuple[float, float]] = []
    async with stage.relays(OURS, table=_LARGE) as (relay,):
        began = time.monotonic()

        def sample(arrived: int) -> None:
            if not seen or arrived - seen[-1][0] >= sizes.remembered / 50:
                seen.append((arrived, processes.resident_bytes(relay) / _MEGABYTE))
                pace.append((arrived, arrived / (time.monotonic() - began)))

        await stage.queue.arrival_of(sizes.remembered, sample)
        last = processes.resident_bytes(relay) / _MEGABYTE
    seen.append((sizes.remembered, last))
    early = next(size for arrived, size in seen if arrived >= sizes.remembered / 5)
    figures = [
        Figure(
            f"memory after {sizes.remembered:,}",
            f"{last:.0f} MB",
            "",
            last,
            f"< {_MOST_MEGABYTES} MB",
            last < _MOST_MEGABYTES,
        ),
        Figure(
            "memory, how flat",
            f"{last:.0f} MB",
            f"{early:.0f} MB after {sizes.remembered // 5:,}",
            last / early,
            "≤ 1.05 ×",
            last / early <= 1.05,
        ),
    ]
    return Report(
        figures,
        [
            Chart("relay's memory, MB", "messages moved", {"resident": seen}),
            Chart("messages a second so far", "messages moved", {"rate": pace[1:]}),
        ],
    )
