"""How fast a worker is: against aio-pika's plain consumer, with sleeping handlers, and exactly once.

Every round measures both sides, one after the other on the same queue; the median of the rounds' ratios
counts. A rate is that between the first and the last message: starting a process is not part of it.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from bench import processes
from bench.consumers import Consumer, consuming, plain, worker
from bench.ratio import faster, rate
from bench.report import Chart, Figure, Report
from bench.sizes import Sizes
from bench.stage import Stage, progress

_SLEEPERS = 1_000
_IDEAL = _SLEEPERS / 0.1
_MEGABYTE = 1_000_000
_MOST_MEGABYTES = 90


@dataclass(frozen=True)
class Run:
    """What handling the queue's messages took."""

    rate: float
    """Messages a second."""
    cpu_us: float
    """CPU of the consumer for one message, in microseconds."""
    broker_cpu_us: float
    """That of the broker."""


Runs: TypeAlias = Sequence[Run]


async def measure(stage: Stage, sizes: Sizes) -> Report:
    at_100: list[Run] = []
    plain_100: list[Run] = []
    at_10: list[Run] = []
    plain_10: list[Run] = []
    sleeping: list[Run] = []
    once: list[Run] = []
    own: list[Run] = []
    exactly = worker("once", 100, auto_create_table="true")
    for number in range(sizes.rounds):
        progress(f"consuming {sizes.drained:,}, round {number + 1} of {sizes.rounds}")
        at_100.append(await _run(stage, worker("trivial", 100), sizes.drained))
        plain_100.append(await _run(stage, plain(100), sizes.drained))
        at_10.append(await _run(stage, worker("trivial", 10), sizes.drained))
        plain_10.append(await _run(stage, plain(10), sizes.drained))
        sleeping.append(await _run(stage, worker("sleeping", _SLEEPERS), sizes.drained))
        once.append(await _run(stage, exactly, sizes.drained // 5))
        own.append(await _run(stage, worker("own_transaction", 100), sizes.drained // 5))
    memory = await _memory(stage, sizes)
    return Report(
        [
            faster(f"consume {sizes.drained:,}, prefetch 100", at_100, plain_100, "aio-pika", 3.5),
            faster("the same, prefetch 10", at_10, plain_10, "aio-pika", 1.2),
            _ideal(sleeping),
            faster("exactly once against the plain consumer", once, plain_100, "aio-pika, no database", 0.4),
            faster("exactly once against at least once", once, own, "the same writes", 0.4),
            *memory.figures,
        ],
        [
            Chart(
                "messages handled a second (median round)",
                "",
                {
                    label: [(0, rate(runs))]
                    for label, runs in (
                        ("aio-pika, 100", plain_100),
                        ("ours, 100", at_100),
                        ("aio-pika, 10", plain_10),
                        ("ours, 10", at_10),
                        ("exactly once", once),
                    )
                },
            ),
            *memory.charts,
        ],
    )


async def _run(stage: Stage, consumer: Consumer, count: int) -> Run:
    await stage.clear()
    await stage.clear_effects()
    await stage.queue.publish(count)
    async with consuming(stage, consumer, count) as at_work:
        pids = [at_work.process.pid]
        before = stage.consumer_cpu(pids)
        moments = sorted((await at_work.moments()).values())
        mine, broker = (late - early for early, late in zip(before, stage.consumer_cpu(pids), strict=True))
    run = Run((count - 1) / (moments[-1] - moments[0]) * 1e9, mine / count * 1e6, broker / count * 1e6)
    name = " ".join((consumer.module, *consumer.arguments))
    print(f"    {name}: {run.rate:,.0f}/s, {run.cpu_us:.0f} + {run.broker_cpu_us:.0f} µs", flush=True)
    return run


def _ideal(runs: Runs) -> Figure:
    """Where the CPU is the limit, the CPU of a message says so."""
    run = sorted(runs, key=lambda each: each.rate)[len(runs) // 2]
    return Figure(
        f"{_SLEEPERS:,} handlers sleeping 100 ms",
        f"{run.rate:,.0f}/s",
        f"{_IDEAL:,.0f}/s ideal; CPU {run.cpu_us:.0f} µs, broker {run.broker_cpu_us:.0f} µs a message",
        run.rate / _IDEAL,
        "≥ 0.9 ×",
        run.rate >= 0.9 * _IDEAL,
    )


async def _memory(stage: Stage, sizes: Sizes) -> Report:
    """One worker that handles many, looked at as it goes."""
    progress(f"handling {sizes.remembered:,} messages and watching the worker's memory")
    await stage.clear()
    seen: list[tuple[float, float]] = []
    chunk = sizes.remembered // 10
    async with consuming(stage, worker("nothing", 100), 0) as at_work:
        began = time.monotonic()
        for handled in range(chunk, sizes.remembered + 1, chunk):
            await stage.queue.publish(chunk)
            await stage.queue.emptied()
            seen.append((handled, processes.resident_bytes(at_work.process.pid) / _MEGABYTE))
        seconds = time.monotonic() - began
    print(f"    {sizes.remembered / seconds:,.0f}/s, published and handled", flush=True)
    early, last = seen[1][1], seen[-1][1]
    return Report(
        [
            Figure(
                f"worker's memory after {sizes.remembered:,}",
                f"{last:.0f} MB",
                "",
                last,
                f"< {_MOST_MEGABYTES} MB",
                last < _MOST_MEGABYTES,
            ),
            Figure(
                "worker's memory, how flat",
                f"{last:.0f} MB",
                f"{early:.0f} MB after {chunk * 2:,}",
                last / early,
                "≤ 1.05 ×",
                last / early <= 1.05,
            ),
        ],
        [Chart("worker's memory, MB", "messages handled", {"resident": seen})],
    )
