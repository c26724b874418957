"""From the return of a commit to the queue's consumer, and to a listener, at 1,000 messages a second.

Sender, relay and consumer are processes of their own, and share CLOCK_MONOTONIC. The
median of the rounds counts, and the best is shown. A relay that cannot take 1,000 a second at all has no
latency but a queue that grows: a comparison with such a one says nothing, and is no success.
"""

import asyncio
import statistics
from collections.abc import Sequence

from bench import processes, tally
from bench.consumers import RECEIVER, Consumer, consuming, plain, worker
from bench.report import Chart, Figure, Report
from bench.sizes import Sizes
from bench.stage import NAIVE, OURS, Stage, progress

_SETTLING = 1_000
"""Messages of the first second are not counted: everything is opened and prepared then."""
_QUEUEING_MS = 500
"""A median beyond this is a backlog that grows."""


async def to_queue(stage: Stage, sizes: Sizes) -> Report:
    """The relay's part of the way."""
    return await _measure(stage, sizes, "commit to queue", (5, 20), (RECEIVER, RECEIVER))


async def to_handler(stage: Stage, sizes: Sizes) -> Report:
    """The whole way, with the settings that both have by default."""
    return await _measure(stage, sizes, "commit to handler", (7, 30), (worker("trivial", 10), plain(10)))


async def _measure(
    stage: Stage,
    sizes: Sizes,
    what: str,
    goals: tuple[float, float],
    consumers: tuple[Consumer, Consumer],
) -> Report:
    """Goals for p50 and p99, and the consumers behind our relay and the naive one."""
    ours: list[list[float]] = []
    naive: list[list[float]] = []
    rounds = 2 * sizes.rounds
    for number in range(rounds):
        progress(f"{what}: {sizes.paced:,} messages at 1,000/s, round {number + 1} of {rounds}")
        ours.append(await _milliseconds(stage, OURS, consumers[0], sizes.paced))
        naive.append(await _milliseconds(stage, NAIVE, consumers[1], sizes.paced))
        for name, last in (("ours", ours[-1]), ("naive", naive[-1])):
            print(f"    {name}: p50 {_at(last, 0.5):.1f} ms, p99 {_at(last, 0.99):.1f} ms", flush=True)
    return Report(
        [
            _below(f"{what} at 1,000/s, p50", ours, naive, 0.5, goals[0]),
            _below(f"{what} at 1,000/s, p99", ours, naive, 0.99, goals[1]),
            _against(what, ours, naive),
        ],
        [Chart(f"{what}, ms", "percentile", {"ours": _curve(ours), "naive": _curve(naive)})],
    )


async def _milliseconds(stage: Stage, relay: str, consumer: Consumer, count: int) -> list[float]:
    """The latencies of one run, sorted."""
    await stage.clear()
    environment = {"OUTBOX_DATABASE_URL": stage.postgres_url, "BENCH_COUNT": str(count)}
    async with stage.relays(relay), consuming(stage, consumer, count) as at_work:
        with processes.running("bench.sender", environment) as sender:
            sent, _ = await asyncio.to_thread(sender.communicate)
        arrivals = await at_work.moments()
    pairs = list(tally.read(sent).items())[_SETTLING:]
    return sorted((arrivals[number] - moment) / 1e6 for number, moment in pairs)


def _at(latencies: Sequence[float], part: float) -> float:
    return latencies[min(int(len(latencies) * part), len(latencies) - 1)]


def _typical(rounds: Sequence[Sequence[float]], part: float) -> float:
    return statistics.median(_at(latencies, part) for latencies in rounds)


def _best(rounds: Sequence[Sequence[float]], part: float) -> float:
    return min(_at(latencies, part) for latencies in rounds)


def _text(rounds: Sequence[Sequence[float]], part: float) -> str:
    return f"{_typical(rounds, part):.1f} ms (best round {_best(rounds, part):.1f})"


def _below(
    what: str, ours: Sequence[Sequence[float]], naive: Sequence[Sequence[float]], part: float, goal: float
) -> Figure:
    value = _typical(ours, part)
    return Figure(
        what, _text(ours, part), f"{_text(naive, part)} naive", value, f"≤ {goal:g} ms", value <= goal
    )


def _against(what: str, ours: Sequence[Sequence[float]], naive: Sequence[Sequence[float]]) -> Figure:
    ratio = _typical(ours, 0.99) / _typical(naive, 0.99)
    keeps_up = _typical(naive, 0.5) < _QUEUEING_MS
    name = "naive" if keeps_up else "naive, which does not keep up: no comparison"
    return Figure(
        f"{what}, p99 against naive",
        _text(ours, 0.99),
        f"{_text(naive, 0.99)} {name}",
        ratio,
        "≤ 0.3 ×",
        ratio <= 0.3 and keeps_up,
    )


def _curve(rounds: Sequence[Sequence[float]]) -> list[tuple[float, float]]:
    return [(percent, _typical(rounds, percent / 100)) for percent in (1, 5, 10, 25, 50, 75, 90, 95, 98, 99)]
