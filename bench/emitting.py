"""What `emit` and `bulk_emit` cost, against the same INSERT written by hand for that driver."""

import inspect
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import asyncpg

from bench.by_hand import BULK_INSERTS, INSERTS, Body
from bench.report import Figure
from outbox import OutboxMessage, schema
from tests.integration.doors import AsyncDoor, Door, SyncDoor
from tests.integration.wire import counted

_BODY: Body = {"id": 123, "username": "johndoe", "email": "johndoe@example.com", "tags": ["a", "b"]}
_EMITS = 200
_ROUNDS = 15
_BULK_ROWS = 10_000
_BULK_ROUNDS = 11


async def measure(url: str) -> list[Figure]:
    figures = []
    for kind in INSERTS:
        print(f"  emit through {kind.label} …", flush=True)
        figures += [await _emit_cpu(kind, url), await _round_trips(kind, url)]
    for kind in BULK_INSERTS:
        print(f"  bulk_emit through {kind.label} …", flush=True)
        figures.append(await _bulk_rate(kind, url))
    return figures


async def _emit_cpu(kind: type[Door], url: str) -> Figure:
    """CPU of this process for one emit, in blocks that alternate with the baseline's."""
    door = await _opened(kind, url)
    by_hand = INSERTS[kind]

    async def ours() -> float:
        return await _timed(door, time.process_time, lambda: _repeat(door.emitter.emit, door.session))  # type: ignore[attr-defined]

    async def baseline() -> float:
        return await _timed(door, time.process_time, lambda: _repeat(by_hand, door.session))

    mine, theirs, ratio = await _alternately(door, ours, baseline, _ROUNDS)
    await door.close()
    return Figure(
        f"emit, CPU: {kind.label}",
        f"{mine / _EMITS * 1e6:.0f} µs",
        f"{theirs / _EMITS * 1e6:.0f} µs by hand",
        ratio,
        "≤ 1.5 ×",
        ratio <= 1.5,
    )


async def _bulk_rate(kind: type[Door], url: str) -> Figure:
    door = await _opened(kind, url)
    by_hand = BULK_INSERTS[kind]
    bodies = [_BODY] * _BULK_ROWS
    messages = [OutboxMessage("user.created", body) for body in bodies]

    async def ours() -> float:
        return await _timed(door, time.perf_counter, lambda: [door.emitter.bulk_emit(door.session, messages)])  # type: ignore[attr-defined]

    async def baseline() -> float:
        return await _timed(door, time.perf_counter, lambda: [by_hand(door.session, "user.created", bodies)])

    mine, theirs, slower = await _alternately(door, ours, baseline, _BULK_ROUNDS)
    await door.close()
    ratio = 1 / slower
    return Figure(
        f"bulk_emit of {_BULK_ROWS:,}: {kind.label}",
        f"{_BULK_ROWS / mine:,.0f} rows/s",
        f"{_BULK_ROWS / theirs:,.0f} rows/s by hand",
        ratio,
        "≥ 0.8 ×",
        ratio >= 0.8,
    )


async def _round_trips(kind: type[Door], url: str) -> Figure:
    async with counted(url) as trips:
        door = kind(trips.url)
        await door.open()
        async with door.transaction():
            for _ in range(10):
                await door.emit("warm.up", _BODY)
            before = trips.count
            for _ in range(_EMITS):
                await door.emit("user.created", _BODY)
            each = (trips.count - before) / _EMITS
        await door.close()
    return Figure(f"emit, round trips: {kind.label}", f"{each:g}", "", each, "1", each == 1)


async def _opened(kind: type[Door], url: str) -> Door:
    connection = await asyncpg.connect(url)
    await connection.execute(schema.drop_sql())
    await connection.execute(schema.create_sql())
    await connection.close()
    door = kind(url)
    await door.open()
    return door


async def _alternately(
    door: Door, ours: Callable[[], Any], baseline: Callable[[], Any], rounds: int
) -> tuple[float, float, float]:
    """The medians of both and of their ratio in each round, after one round to warm up.

    Each measurement is a transaction that is rolled back. The two of a round follow each other, so that what
    disturbs the machine for longer disturbs both.
    """
    mine: list[float] = []
    theirs: list[float] = []
    for number in range(rounds + 1):
        pair = ((ours, mine), (baseline, theirs))
        # Whoever goes second finds what the first has left behind, so they take turns.
        for measured, results in pair if number % 2 else reversed(pair):
            await door.begin()
            results.append(await measured())
            await door.rollback()
    ratios = [ours / hand for ours, hand in zip(mine[1:], theirs[1:], strict=True)]
    return statistics.median(mine[1:]), statistics.median(theirs[1:]), statistics.median(ratios)


def _repeat(call: Callable[[Any, str, Body], Any], session: Any) -> Iterator[Any]:
    return (call(session, "user.created", _BODY) for _ in range(_EMITS))


async def _timed(door: Door, clock: Callable[[], float], calls: Callable[[], Any]) -> float:
    """Run the calls where the door lives, without paying its thread for each one."""
    if isinstance(door, SyncDoor):
        elapsed: float = await door.on_thread(_blocking, clock, calls)
        return elapsed
    assert isinstance(door, AsyncDoor)
    start = clock()
    for call in calls():
        if inspect.isawaitable(call):
            await call
    return clock() - start


def _blocking(clock: Callable[[], float], calls: Callable[[], Any]) -> float:
    start = clock()
    for _ in calls():
        pass
    return clock() - start
