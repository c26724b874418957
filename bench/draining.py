"""How fast a backlog drains: against a naive relay, the broker's ceiling, two replicas, and ordering keys.

Every round measures all of them, one after the other on the same services. What counts is the median of the
rounds' ratios: both sides of a ratio then had about the same machine. The range of the ratios is shown, for a
verdict that lies inside of it is the machine's as much as ours.
"""

import statistics
from collections.abc import Callable, Sequence
from typing import TypeAlias

from bench import ceiling, perf_test
from bench.ratio import faster, rate
from bench.report import Chart, Figure, Report
from bench.sizes import Sizes
from bench.stage import NAIVE, OURS, Drain, Stage, progress

Drains: TypeAlias = Sequence[Drain]


async def measure(stage: Stage, sizes: Sizes) -> Report:
    jars = perf_test.jars()
    count = sizes.drained
    ours: list[Drain] = []
    naive: list[Drain] = []
    top: list[Drain] = []
    keyed: list[Drain] = []
    replicas: list[Drain] = []
    for number in range(sizes.rounds):
        progress(f"draining {count:,}, round {number + 1} of {sizes.rounds}")
        ours.append(await _drain(stage, OURS, count))
        naive.append(await _drain(stage, NAIVE, count))
        top.append(await ceiling.measure(stage, jars, count))
        keyed.append(await _drain(stage, OURS, count, keys=sizes.keys))
        replicas.append(await _drain(stage, OURS, count, replicas=2))
    publisher = "PerfTest or our publisher" if jars else "our publisher, no database"
    return Report(
        [
            faster(f"drain {count:,} of 256 B", ours, naive, "naive", 5),
            faster("drain, of the broker's ceiling", ours, top, publisher, 0.6),
            _split("CPU of a message, ours against naive", ours, naive),
            _split("CPU of a message, ours against the ceiling", ours, top),
            faster(f"drain with {sizes.keys:,} ordering keys", keyed, ours, "without", 0.5),
            _cheaper("CPU of a message, two replicas", replicas, ours),
        ],
        [
            _bars("messages a second (median round)", rate, naive, ours, keyed, replicas, top),
            _bars("CPU of the publishing side, µs a message", _cpu, naive, ours, keyed, replicas, top),
        ],
    )


async def _drain(stage: Stage, module: str, count: int, *, keys: int = 0, replicas: int = 1) -> Drain:
    await stage.clear()
    await stage.fill(count, keys=keys)
    drained = await stage.drain(module, count, replicas=replicas)
    what = f"{module}{' keyed' if keys else ''}{' × 2' if replicas > 1 else ''}"
    print(f"    {what}: {drained.rate:,.0f}/s, CPU: {drained.split()}", flush=True)
    return drained


def _cpu(drains: Drains) -> float:
    return statistics.median(drain.relay_cpu_us for drain in drains)


def _cheaper(what: str, drains: Drains, baseline: Drains) -> Figure:
    ratios = [mine.relay_cpu_us / one.relay_cpu_us for mine, one in zip(drains, baseline, strict=True)]
    ratio = statistics.median(ratios)
    return Figure(
        what,
        f"{_cpu(drains):.1f} µs",
        f"{_cpu(baseline):.1f} µs with one (ratios {min(ratios):.2f}–{max(ratios):.2f})",
        ratio,
        "≤ 1.2 ×",
        ratio <= 1.2,
    )


def _split(what: str, drains: Drains, baseline: Drains) -> Figure:
    """Where the time goes: no goal, but what limits the others."""
    mine, theirs = (sorted(each, key=_all_cpu)[len(each) // 2] for each in (drains, baseline))
    ratio = _all_cpu(mine) / _all_cpu(theirs)
    return Figure(what, mine.split(), theirs.split(), ratio, "", True)


def _all_cpu(drain: Drain) -> float:
    return (drain.relay_cpu + drain.postgres_cpu + drain.broker_cpu) / drain.messages


def _bars(title: str, value: Callable[[Drains], float], *each: Drains) -> Chart:
    labels = ("naive", "ours", "ours, keyed", "two replicas", "ceiling")
    return Chart(title, "", {label: [(0, value(it))] for label, it in zip(labels, each, strict=True)})
