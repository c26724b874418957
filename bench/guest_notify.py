"""What the triggers cost those who emit, and what relays cost the database while little is to be done."""

import asyncio
import contextlib
import statistics
from collections.abc import AsyncIterator

import asyncpg
from prometheus_client import REGISTRY

from bench import pgbench, processes, tally
from bench.consumers import RECEIVER, consuming
from bench.queue import TOPIC
from bench.report import Figure, Report
from bench.sizes import Sizes
from bench.stage import OURS, TABLE, Stage, progress
from outbox import Emitter, MessageRelay, schema
from tests.integration.wire import counted

_CONNECTIONS = (32, 8)
_GOAL = 0.85
_ROUNDS = 4
_RELAYS = 10
_CALLS_A_MINUTE = 60
_PER_SECOND = 100
_WARM_SECONDS = 75.0
"""After which relays have prepared all statements that they have while idle."""
_RELAY_US, _POSTGRES_TIMES = 100.0, 1.5
_SKIPPED = 1_000
_EMIT = f"INSERT INTO {TABLE} (routing_key, body, tracking_ids) VALUES ('{TOPIC}', 'hello', '[]');\n"


async def commits(stage: Stage, sizes: Sizes) -> Report:
    """Commits a second of connections that each emit one message a commit, with the triggers and without."""
    figures = []
    for relays in (False, True):
        for connections in _CONNECTIONS:
            figures.append(await _commits(stage, sizes, connections, relays=relays))
    return Report(figures)


async def _commits(stage: Stage, sizes: Sizes, connections: int, *, relays: bool) -> Figure:
    beside = "a relay" if relays else "no relay"
    progress(f"commits/s of {connections} connections, {beside}")
    rates: dict[bool, list[float]] = {True: [], False: []}
    for number in range(_ROUNDS):
        for notify in (True, False) if number % 2 else (False, True):
            rates[notify].append(await _rate(stage, sizes, connections, notify=notify, relays=relays))
    ratio = statistics.median(mine / theirs for mine, theirs in zip(rates[True], rates[False], strict=True))
    return Figure(
        f"commits/s of {connections} emitting connections, {beside}",
        f"{statistics.median(rates[True]):,.0f}/s",
        f"{statistics.median(rates[False]):,.0f}/s without triggers",
        ratio,
        f"≥ {_GOAL}",
        ratio >= _GOAL,
    )


async def _rate(stage: Stage, sizes: Sizes, connections: int, *, notify: bool, relays: bool) -> float:
    await stage.clear()
    if not notify:
        await _execute(stage, schema.upgrade_sql(TABLE, notify=False))
    environment = {"OUTBOX_NOTIFY": "if_asleep" if notify else "never"}
    async with contextlib.AsyncExitStack() as stack:
        if relays:
            await stack.enter_async_context(stage.relays(OURS, environment=environment))
        return await asyncio.to_thread(_pgbench, stage.postgres_url, connections, sizes.commit_seconds)


async def _execute(stage: Stage, sql: str) -> None:
    connection = await asyncpg.connect(stage.postgres_url)
    try:
        await connection.execute(sql)
    finally:
        await connection.close()


def _pgbench(url: str, connections: int, seconds: float) -> float:
    with pgbench.script(_EMIT) as script:
        return pgbench.rate(pgbench.run(url, f"-n -M prepared -c {connections} -j 2 -T {seconds:g} {script}"))


async def idling(stage: Stage, sizes: Sizes) -> Report:
    """Ten relays on one table: how often they ask the database when idle, and at 100 messages/s."""
    await stage.clear()
    async with counted(stage.postgres_url) as trips, _relays(stage, trips.url):
        progress(f"{_RELAYS} idle relays, {sizes.idle_relays_seconds:g} s")
        await asyncio.sleep(_WARM_SECONDS)
        before = trips.count
        await asyncio.sleep(sizes.idle_relays_seconds)
        calls = (trips.count - before) * 60 / sizes.idle_relays_seconds
        progress(f"{_RELAYS} relays at {_PER_SECOND} messages/s")
        looks = await _looks_a_message(stage, sizes.paced // 10)
    return Report(
        [
            Figure(
                f"{_RELAYS} idle relays, calls of the database a minute",
                f"{calls:.0f}",
                "",
                calls,
                f"≤ {_CALLS_A_MINUTE}",
                calls <= _CALLS_A_MINUTE,
            ),
            Figure(
                f"{_RELAYS} relays at {_PER_SECOND}/s, claims a message",
                f"{looks:.2f}",
                "",
                looks,
                "≤ 2",
                looks <= 2,
            ),
        ]
    )


@contextlib.asynccontextmanager
async def _relays(stage: Stage, url: str) -> AsyncIterator[None]:
    """Relays in this process, whose metrics are read."""
    stopping = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for _ in range(_RELAYS):
            relay = MessageRelay(db_engine_url=url, rmq_connection_url=stage.broker_url)
            group.create_task(relay.run_until(stopping))
        yield
        stopping.set()


async def _looks_a_message(stage: Stage, count: int) -> float:
    before = _wakes()
    connection = await asyncpg.connect(stage.postgres_url)
    began = asyncio.get_running_loop().time()
    for number in range(count):
        await asyncio.sleep(began + number / _PER_SECOND - asyncio.get_running_loop().time())
        async with connection.transaction():
            await Emitter().emit(connection, TOPIC, number)
    await connection.close()
    return (_wakes() - before) / count


def _wakes() -> float:
    """How often a relay was woken to claim."""
    return sum(
        sample.value
        for metric in REGISTRY.collect()
        if metric.name == "outbox_wakeups"
        for sample in metric.samples
        if sample.name.endswith("_total")
    )


async def steady(stage: Stage, sizes: Sizes) -> Report:
    """CPU for a message at a steady 1,000/s, and how long it takes then."""
    relay, postgres, alone, latencies = [], [], [], []
    for number in range(sizes.rounds):
        progress(f"CPU a message at 1,000/s, round {number + 1} of {sizes.rounds}")
        alone.append(await _alone(stage, sizes.paced))
        mine, server, moments = await _beside_a_relay(stage, sizes.paced)
        relay.append(mine)
        postgres.append(server)
        latencies.append(moments)
    mine = statistics.median(relay)
    times = statistics.median(with_it / without for with_it, without in zip(postgres, alone, strict=True))
    p50, p99 = (statistics.median(each[int(len(each) * part)] for each in latencies) for part in (0.5, 0.99))
    return Report(
        [
            Figure(
                "CPU of the relay a message at 1,000/s",
                f"{mine:.0f} µs",
                "",
                mine,
                "≤ 100 µs",
                mine <= _RELAY_US,
            ),
            Figure(
                "CPU of Postgres a message at 1,000/s",
                f"{statistics.median(postgres):.0f} µs",
                f"{statistics.median(alone):.0f} µs inserts alone",
                times,
                "≤ 1.5 ×",
                times <= _POSTGRES_TIMES,
            ),
            Figure("commit to queue beside it, p50", f"{p50:.1f} ms", "", p50, "≤ 5 ms", p50 <= 5),
            Figure("commit to queue beside it, p99", f"{p99:.1f} ms", "", p99, "≤ 20 ms", p99 <= 20),
        ]
    )


async def _alone(stage: Stage, count: int) -> float:
    await stage.clear()
    await _execute(stage, schema.upgrade_sql(TABLE, notify=False))
    _, before, _ = await stage.cpu([])
    await _sent(stage, count)
    _, after, _ = await stage.cpu([])
    return (after - before) / count * 1e6


async def _beside_a_relay(stage: Stage, count: int) -> tuple[float, float, list[float]]:
    await stage.clear()
    async with stage.relays(OURS) as pids, consuming(stage, RECEIVER, count) as at_work:
        before = await stage.cpu(pids)
        sent = await _sent(stage, count)
        arrivals = await at_work.moments()
        after = await stage.cpu(pids)
    relay, postgres, _ = ((late - early) / count * 1e6 for early, late in zip(before, after, strict=True))
    pairs = list(sent.items())[_SKIPPED:]
    return relay, postgres, sorted((arrivals[number] - moment) / 1e6 for number, moment in pairs)


async def _sent(stage: Stage, count: int) -> dict[int, int]:
    environment = {"OUTBOX_DATABASE_URL": stage.postgres_url, "BENCH_COUNT": str(count)}
    with processes.running("bench.sender", environment) as sender:
        told, _ = await asyncio.to_thread(sender.communicate)
    return tally.read(told)
