"""How large the table becomes while messages pass, since autovacuum comes once a minute at most."""

import asyncio
import time

import asyncpg

from bench.queue import TOPIC
from bench.report import Chart, Figure, Report
from bench.sizes import Sizes
from bench.stage import OURS, TABLE, Stage, progress

_PER_SECOND = 5_000
_BATCH = 100
_SAMPLE_SECONDS = 1.0
_PATIENCE_SECONDS = 120.0
"""How long the relay may take to catch up."""
_TIMES = 3.0
_MEGABYTE = 1_000_000

_EMIT = f"""
    INSERT INTO {TABLE} (routing_key, body, content_type, send_after)
    SELECT $1, convert_to(rpad('"', 255, 'x') || '"', 'UTF8'), 'application/json',
        now() + $2::float8 * interval '1 second'
    FROM generate_series(1, $3::integer)
"""
_SIZE = f"SELECT pg_total_relation_size('{TABLE}')"
_LATE = f"SELECT count(*) FROM {TABLE} WHERE send_after < now() - interval '1 second'"


async def growth(stage: Stage, sizes: Sizes) -> Report:
    """The largest size seen, against the size after the first messages."""
    progress(f"size of the table, {sizes.grown:,} messages at {_PER_SECOND:,}/s or what the relay takes")
    await stage.clear()
    connection = await asyncpg.connect(stage.postgres_url)
    try:
        async with stage.relays(OURS):
            began = time.monotonic()
            samples = await _samples(stage, connection, sizes)
            rate = (sizes.grown + sizes.grown_backlog) / (time.monotonic() - began)
    finally:
        await connection.close()
    early = next(size for sent, size in samples if sent >= sizes.grown_little)
    largest = max(size for sent, size in samples if sent >= sizes.grown_little)
    figure = Figure(
        f"table and indexes at their largest, {sizes.grown:,} messages, {sizes.grown_backlog:,} pending",
        f"{largest:.0f} MB at {rate:,.0f}/s",
        f"{early:.0f} MB after {sizes.grown_little:,}",
        largest / early,
        f"≤ {_TIMES:g} ×",
        largest <= _TIMES * early,
    )
    return Report([figure], [Chart("table and indexes, MB", "messages sent", {"size": samples})])


async def _samples(stage: Stage, connection: asyncpg.Connection, sizes: Sizes) -> list[tuple[float, float]]:
    """How many messages were sent, and how many megabytes the table had then.

    Each message is due some seconds after it is emitted, so that a steady number is pending.
    """
    samples: list[tuple[float, float]] = []
    delay = sizes.grown_backlog / _PER_SECOND
    sampled = began = time.monotonic()
    for emitted in range(0, sizes.grown + sizes.grown_backlog + 1, _BATCH):
        await asyncio.sleep(began + emitted / _PER_SECOND - time.monotonic())
        await connection.execute(_EMIT, TOPIC, delay, _BATCH)
        if time.monotonic() - sampled > _SAMPLE_SECONDS or emitted >= sizes.grown + sizes.grown_backlog:
            sampled = time.monotonic()
            began += await _caught_up(connection)
            size = await connection.fetchval(_SIZE)
            samples.append((max(0, emitted - sizes.grown_backlog), size / _MEGABYTE))
            # The broker keeps nothing: this is about the table.
            await stage.queue.purge()
    return samples


async def _caught_up(connection: asyncpg.Connection) -> float:
    """Wait until next to nothing is late, so that the backlog stays what it is; tells for how long."""
    began = time.monotonic()
    async with asyncio.timeout(_PATIENCE_SECONDS):
        while await connection.fetchval(_LATE) > _PER_SECOND:  # noqa: ASYNC110 - theirs
            await asyncio.sleep(0.1)
    return time.monotonic() - began
