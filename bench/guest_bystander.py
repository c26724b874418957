"""What somebody else's transactions in the same database feel of messages that pass."""

import asyncio
import contextlib
import statistics
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg

from bench import pgbench
from bench.queue import TOPIC
from bench.report import Figure, Report
from bench.sizes import Sizes
from bench.stage import OURS, TABLE, Stage, progress

_PER_SECOND = 2_000
_TIMES = 1.2
_CLIENTS = 4
_EMITTERS = 8
_SCALE = 10
_WARM_SECONDS = 2
_BYSTANDER = f"-n -M prepared -c {_CLIENTS} -j 1"
_EMIT = f"INSERT INTO {TABLE} (routing_key, body) VALUES ('{TOPIC}', convert_to(repeat('x', 256), 'UTF8'));\n"


async def latency(stage: Stage, sizes: Sizes) -> Report:
    """Latency of TPC-B at half its rate, beside emits that are relayed and the same that are not."""
    async with stage.postgres_on_a_core_of_its_own():
        await asyncio.to_thread(pgbench.run, stage.postgres_url, f"-i -q -s {_SCALE}")
        progress("TPC-B alone")
        options = f"{_BYSTANDER} -T {sizes.bystander_seconds:g}"
        alone = pgbench.rate(await asyncio.to_thread(pgbench.run, stage.postgres_url, options))
        with_relay: list[float] = []
        without: list[float] = []
        left = 0
        for number in range(2 * sizes.rounds):
            progress(f"TPC-B at {alone / 2:,.0f}/s beside {_PER_SECOND:,} messages/s, round {number + 1}")
            for is_relayed in (True, False) if number % 2 else (False, True):
                milliseconds, rows = await _p95(stage, alone / 2, sizes.bystander_seconds, is_relayed)
                (with_relay if is_relayed else without).append(milliseconds)
                left = max(left, rows if is_relayed else 0)
        await _drop(stage)
    ratio = statistics.median(mine / theirs for mine, theirs in zip(with_relay, without, strict=True))
    return Report(
        [
            Figure(
                f"p95 of TPC-B at {alone / 2:,.0f}/s beside {_PER_SECOND:,} messages/s",
                f"{statistics.median(with_relay):.2f} ms (at most {left:,} messages were left)",
                f"{statistics.median(without):.2f} ms beside the same inserts",
                ratio,
                f"≤ {_TIMES:g} ×",
                # A relay that does not keep up does not do what is measured.
                ratio <= _TIMES and left <= _PER_SECOND,
            )
        ]
    )


async def _p95(stage: Stage, per_second: float, seconds: float, is_relayed: bool) -> tuple[float, int]:
    """In milliseconds, and how many messages are left in the table then."""
    await stage.clear()
    connection = await asyncpg.connect(stage.postgres_url)
    try:
        async with _relay(stage, is_relayed):
            with (
                pgbench.script(_EMIT) as script,
                pgbench.running(
                    stage.postgres_url,
                    f"-n -M prepared -c {_EMITTERS} -j 1 -R {_PER_SECOND} -T {10 * seconds + 60:g} {script}",
                ),
                tempfile.TemporaryDirectory() as folder,
            ):
                await asyncio.sleep(_WARM_SECONDS)
                await asyncio.to_thread(
                    pgbench.run,
                    stage.postgres_url,
                    f"{_BYSTANDER} -R {per_second:g} -T {seconds:g} -l",
                    folder=Path(folder),
                )
                left = await connection.fetchval(f"SELECT count(*) FROM {TABLE}")
                latencies = _latencies(Path(folder))
    finally:
        await connection.close()
    return statistics.quantiles(latencies, n=20)[-1] / 1000, left


@contextlib.asynccontextmanager
async def _relay(stage: Stage, is_relayed: bool) -> AsyncIterator[None]:
    if is_relayed:
        async with stage.relays(OURS):
            yield
    else:
        yield


def _latencies(folder: Path) -> list[int]:
    """In microseconds, from the moment at which a transaction was to begin; without those skipped."""
    lines = [line.split() for path in folder.iterdir() for line in path.read_text().splitlines()]
    return [int(fields[2]) for fields in lines if fields[2].isdigit()]


async def _drop(stage: Stage) -> None:
    await asyncio.to_thread(pgbench.run, stage.postgres_url, "-i -I d")
