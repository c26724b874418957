"""What rows cost that cannot be claimed: dead ones under a held snapshot, keys that wait, and stuck keys.

A relay on a troubled table and one on a clean table run side by side, and take turns at work.
"""

import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import asyncpg

from bench.queue import TOPIC
from bench.ratio import faster
from bench.report import Figure, Report
from bench.sizes import Sizes
from bench.stage import OURS, Stage, progress
from outbox import Emitter

_CLEAN, _TROUBLED = "outbox_clean", "outbox_troubled"
_CHUNK = 100_000
_SINGLES = 30
_STUCK_KEYS = 100
_SETTLING_SECONDS = 2.0

_WAITING = """
    INSERT INTO {table} (routing_key, body, ordering_key, attempts, send_after, parked_at)
    SELECT '{topic}', '', 'waiting-' || number, {attempts}, {send_after}, {parked_at}
    FROM generate_series(1, {count}) AS number
"""
_STATES = {
    "due tomorrow": {"attempts": "0", "send_after": "now() + interval '1 day'", "parked_at": "NULL"},
    "backing off": {"attempts": "3", "send_after": "now() + interval '1 hour'", "parked_at": "NULL"},
    "parked": {"attempts": "9", "send_after": "now()", "parked_at": "now()"},
}


@dataclass(frozen=True)
class _Drained:
    count: int
    seconds: float

    @property
    def rate(self) -> float:
        return self.count / self.seconds


@dataclass
class _Measured:
    """What one of the two tables showed, round by round."""

    drains: list[_Drained] = field(default_factory=list)
    singles_ms: list[float] = field(default_factory=list)


async def dead_rows(stage: Stage, sizes: Sizes) -> Report:
    """A snapshot is held while messages pass, without ordering keys and with them."""
    report = Report()
    for keys, count in ((0, sizes.dead), (sizes.keys, sizes.dead_keyed)):
        progress(f"{count:,} messages under a held snapshot, {keys:,} ordering keys")
        async with _both(stage), _held_snapshot(stage):
            pace = await _pass(stage, count, keys)
            clean, troubled = await _compared(stage, sizes, keys)
        what = f"snapshot held, {count:,} messages" + (f" of {keys:,} keys" if keys else "")
        report.add(Report([*_rows(what, clean, troubled, 0.95), _flat(what, pace)]))
    return report


async def waiting_keys(stage: Stage, sizes: Sizes) -> Report:
    """Very many ordering keys wait."""
    report = Report()
    for state, columns in _STATES.items():
        progress(f"{sizes.waiting:,} ordering keys, {state}")
        async with _both(stage):
            await stage.execute(_WAITING.format(table=_TROUBLED, topic=TOPIC, count=sizes.waiting, **columns))
            clean, troubled = await _compared(stage, sizes, sizes.keys)
        report.add(Report(_rows(f"{sizes.waiting:,} keys {state}", clean, troubled, 0.9)))
    return report


async def stuck_keys(stage: Stage, sizes: Sizes) -> Report:
    """The first row of some keys is parked, and very many are due behind it."""
    progress(f"{_STUCK_KEYS} stuck keys, {sizes.stuck:,} due rows each")
    async with _both(stage):
        await stage.execute(
            f"INSERT INTO {_TROUBLED} (routing_key, body, ordering_key, parked_at) "
            f"SELECT '{TOPIC}', '', 'stuck-' || number, now() "
            f"FROM generate_series(0, {_STUCK_KEYS - 1}) AS number"
        )
        await stage.fill(_STUCK_KEYS * sizes.stuck, table=_TROUBLED, keys=_STUCK_KEYS, prefix="stuck")
        clean, troubled = await _compared(stage, sizes, sizes.keys)
    return Report(_rows(f"{_STUCK_KEYS} stuck keys, {sizes.stuck:,} rows each", clean, troubled, 0.9))


@contextlib.asynccontextmanager
async def _both(stage: Stage) -> AsyncIterator[None]:
    """An empty table of each kind, with a relay at work on it."""
    await stage.clear(_CLEAN)
    await stage.clear(_TROUBLED)
    async with stage.relays(OURS, table=_CLEAN), stage.relays(OURS, table=_TROUBLED):
        yield


@contextlib.asynccontextmanager
async def _held_snapshot(stage: Stage) -> AsyncIterator[None]:
    holder = await asyncpg.connect(stage.postgres_url)
    try:
        await holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await holder.fetch(f"SELECT FROM {_TROUBLED} LIMIT 1")
        yield
    finally:
        await holder.close()


async def _pass(stage: Stage, count: int, keys: int) -> list[_Drained]:
    """Have so many messages pass through the troubled table."""
    pace = []
    for _ in range(max(1, count // _CHUNK)):
        pace.append(await _drained(stage, _TROUBLED, min(count, _CHUNK), keys))
        await stage.queue.purge()
    return pace


async def _drained(stage: Stage, table: str, count: int, keys: int) -> _Drained:
    """Insert messages in one transaction, and wait for them in the queue."""
    already = await stage.queue.waiting()
    await stage.fill(count, table=table, keys=keys, vacuum=False)
    began = time.monotonic()
    await stage.queue.arrival_of(already + count)
    return _Drained(count, time.monotonic() - began)


async def _compared(stage: Stage, sizes: Sizes, keys: int) -> tuple[_Measured, _Measured]:
    clean, troubled = _Measured(), _Measured()
    pairs = ((_CLEAN, clean), (_TROUBLED, troubled))
    for number in range(4 * sizes.rounds):
        for table, measured in pairs if number % 2 else reversed(pairs):
            measured.drains.append(await _drained(stage, table, sizes.few, keys))
            await stage.queue.purge()
    # By then both relays sleep.
    await asyncio.sleep(_SETTLING_SECONDS)
    emitter = await asyncpg.connect(stage.postgres_url)
    try:
        for number in range(_SINGLES):
            for table, measured in pairs if number % 2 else reversed(pairs):
                measured.singles_ms.append(await _single_ms(stage, emitter, table))
    finally:
        await emitter.close()
    return clean, troubled


async def _single_ms(stage: Stage, emitter: asyncpg.Connection, table: str) -> float:
    async with stage.queue.arrival() as arrived:
        async with emitter.transaction():
            await Emitter(table_name=table).emit(emitter, TOPIC, 1)
        began = time.monotonic()
        await arrived.wait()
        return (time.monotonic() - began) * 1e3


def _rows(what: str, clean: _Measured, troubled: _Measured, goal: float) -> list[Figure]:
    mine, theirs = statistics.median(troubled.singles_ms), statistics.median(clean.singles_ms)
    return [
        faster(f"drain: {what}", troubled.drains, clean.drains, "clean", goal),
        Figure(
            f"a single message: {what}",
            f"{mine:.1f} ms",
            f"{theirs:.1f} ms clean",
            mine / theirs,
            "≤ 2 ×",
            mine / theirs <= 2,
        ),
    ]


def _flat(what: str, pace: Sequence[_Drained]) -> Figure:
    ratio = pace[-1].rate / pace[0].rate
    return Figure(
        f"the last {_CHUNK:,} against the first: {what}",
        f"{pace[-1].rate:,.0f}/s",
        f"{pace[0].rate:,.0f}/s",
        ratio,
        "≥ 0.9 ×",
        ratio >= 0.9,
    )
