"""The whole way: emit, relay, worker, against a naive relay with a plain consumer."""

import asyncio
import statistics

from bench import processes
from bench.consumers import Consumer, consuming, plain, worker
from bench.report import Figure, Report
from bench.sizes import Sizes
from bench.stage import NAIVE, OURS, Stage, progress

_PREFETCH = 100


async def measure(stage: Stage, sizes: Sizes) -> Report:
    count = sizes.drained * 2 // 5
    ours: list[float] = []
    naive: list[float] = []
    for number in range(sizes.rounds):
        progress(f"{count:,} messages from emit to handler, round {number + 1} of {sizes.rounds}")
        ours.append(await _rate(stage, OURS, worker("trivial", _PREFETCH), count))
        naive.append(await _rate(stage, NAIVE, plain(_PREFETCH), count))
        print(f"    ours {ours[-1]:,.0f}/s, naive {naive[-1]:,.0f}/s", flush=True)
    ratios = [mine / theirs for mine, theirs in zip(ours, naive, strict=True)]
    ratio = statistics.median(ratios)
    return Report(
        [
            Figure(
                f"emit → relay → worker, {count:,}",
                f"{statistics.median(ours):,.0f}/s",
                f"{statistics.median(naive):,.0f}/s naive (ratios {min(ratios):.2f}–{max(ratios):.2f})",
                ratio,
                "≥ 3 ×",
                ratio >= 3,
            )
        ]
    )


async def _rate(stage: Stage, relay: str, consumer: Consumer, count: int) -> float:
    """Messages a second, from the first emit to the last handler."""
    await stage.clear()
    environment = {"OUTBOX_DATABASE_URL": stage.postgres_url, "BENCH_COUNT": str(count)}
    async with stage.relays(relay), consuming(stage, consumer, count) as at_work:
        with processes.running("bench.burst", environment) as emitting:
            assert emitting.stdout is not None
            began = int(await asyncio.to_thread(emitting.stdout.readline))
            moments = await at_work.moments()
    return count / (max(moments.values()) - began) * 1e9
