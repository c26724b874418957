"""From the return of a commit to the arrival in the queue's consumer, at 1,000 messages a second.

Sender, relay and receiver are processes of their own, and share CLOCK_MONOTONIC. The
median of the rounds counts, and the best is shown. A relay that cannot take 1,000 a second at all has no
latency but a queue that grows: a comparison with such a one says nothing, and is no success.
"""

import asyncio
import statistics
from collections.abc import Sequence

from bench import processes
from bench.harness import NAIVE, OURS, Sizes, Stage, progress
from bench.report import Chart, Figure, Report

_SETTLING = 1_000
"""Messages of the first second are not counted: everything is opened and prepared then."""
_QUEUEING_MS = 500
"""A median beyond this is a backlog that grows."""


async def measure(stage: Stage, sizes: Sizes) -> Report:
    ours: list[list[float]] = []
    naive: list[list[float]] = []
    rounds = 2 * sizes.rounds
    for number in range(rounds):
        progress(f"{sizes.paced:,} messages at 1,000/s, round {number + 1} of {rounds}")
        ours.append(await _milliseconds(stage, OURS, sizes.paced))
        naive.append(await _milliseconds(stage, NAIVE, sizes.paced))
        for name, last in (("ours", ours[-1]), ("naive", naive[-1])):
            print(f"    {name}: p50 {_at(last, 0.5):.1f} ms, p99 {_at(last, 0.99):.1f} ms", flush=True)
    return Report(
        [
            _below("commit to queue at 1,000/s, p50", ours, naive, 0.5, 5),
            _below("commit to queue at 1,000/s, p99", ours, naive, 0.99, 20),
            _against(ours, naive),
        ],
        [Chart("commit to queue, ms", "percentile", {"ours": _curve(ours), "naive": _curve(naive)})],
    )


async def _milliseconds(stage: Stage, module: str, count: int) -> list[float]:
    """The latencies of one run, sorted."""
    await stage.clear()
    environment = {
        "OUTBOX_DATABASE_URL": stage.postgres_url,
        "OUTBOX_BROKER_URL": stage.broker_url,
        "BENCH_COUNT": str(count),
    }
    async with stage.relays(module):
        with processes.running("bench.receiver", environment) as receiver:
            assert receiver.stdout is not None
            await asyncio.to_thread(receiver.stdout.readline)
            with processes.running("bench.sender", environment) as sender:
                sent, _ = await asyncio.to_thread(sender.communicate)
            received, _ = await asyncio.to_thread(receiver.communicate)
    arrivals = _moments(received)
    pairs = list(_moments(sent).items())[_SETTLING:]
    return sorted((arrivals[message_id] - moment) / 1e6 for message_id, moment in pairs)


def _moments(lines: str) -> dict[str, int]:
    return {message_id: int(moment) for message_id, moment in (line.split() for line in lines.splitlines())}


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


def _against(ours: Sequence[Sequence[float]], naive: Sequence[Sequence[float]]) -> Figure:
    ratio = _typical(ours, 0.99) / _typical(naive, 0.99)
    keeps_up = _typical(naive, 0.5) < _QUEUEING_MS
    name = "naive" if keeps_up else "naive, which does not keep up: no comparison"
    return Figure(
        "commit to queue, p99 against naive",
        _text(ours, 0.99),
        f"{_text(naive, 0.99)} {name}",
        ratio,
        "≤ 0.3 ×",
        ratio <= 0.3 and keeps_up,
    )


def _curve(rounds: Sequence[Sequence[float]]) -> list[tuple[float, float]]:
    return [(percent, _typical(rounds, percent / 100)) for percent in (1, 5, 10, 25, 50, 75, 90, 95, 98, 99)]
