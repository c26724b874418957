"""Only the database server's clock counts."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import asyncpg
import pytest

from outbox import Emitter, OutboxMessage
from outbox_cli.local import apt
from tests.chaos.conftest import Measure
from tests.chaos.world import World

DAY_SECONDS = 86_400
SCRIPT = Path(__file__).with_name("skewed_application.py")


def faked(offset: str | None) -> dict[str, str]:
    """The environment in which a whole process has the wrong time; an empty one for no offset."""
    if offset is None:
        return {}
    library = _library()
    if library is None and os.geteuid() == 0 and shutil.which("apt-get"):
        apt.install(["libfaketime"])
        library = _library()
    if library is None:
        pytest.skip("libfaketime is not installed (Debian: apt-get install libfaketime)")
    return {"LD_PRELOAD": str(library), "FAKETIME": offset, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


def _library() -> Path | None:
    return next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)


@pytest.mark.parametrize(
    ("offset", "patched_seconds", "off_seconds"),
    [
        pytest.param(None, DAY_SECONDS, DAY_SECONDS, id="ahead"),
        pytest.param("+1d", 0, DAY_SECONDS, id="whole-process-ahead"),
        pytest.param("-1d", 0, -DAY_SECONDS, id="whole-process-behind"),
    ],
)
async def test_a_clock_that_is_a_day_wrong_changes_nothing(
    world: World, offset: str | None, patched_seconds: float, off_seconds: float
) -> None:
    environment = faked(offset)
    # Where the whole process can be told the wrong time, the relay is told it too.
    await world.start_relay(environment, clean_up_after="never")
    async with world.database() as database:
        before = await database.fetchval("SELECT clock_timestamp()")
        command = [sys.executable, str(SCRIPT), world.postgres_url, str(patched_seconds)]
        done = await asyncio.to_thread(
            subprocess.run, command, check=True, stdout=subprocess.PIPE, env={**os.environ, **environment}
        )
        after = await database.fetchval("SELECT clock_timestamp()")
        emitted = json.loads(done.stdout)
        assert abs(emitted["clock"] - time.time() - off_seconds) < 3600, "the clock was not shifted"
        world.ledger.committed |= {UUID(known): None for known in emitted["ids"]}
        await database.execute("INSERT INTO orders SELECT unnest($1::uuid[])", emitted["ids"])
        assert await world.close_the_books() == 0
        rows = await database.fetch(
            "SELECT *, send_after - (convert_from(body, 'UTF8')::json->>'delay_ms')::float8"
            " * interval '1 millisecond' AS emitted_at FROM outbox_table"
        )
    assert len(rows) == len(emitted["ids"])
    assert all(before <= row["created_at"] <= after for row in rows)
    assert all(before <= row["emitted_at"] <= after for row in rows)
    assert all(row["send_after"] <= row["sent_at"] for row in rows)
    assert {(row["attempts"], row["parked_at"]) for row in rows} == {(0, None)}


async def test_ten_thousand_timers_of_one_instant_arrive_once_and_not_early(
    world: World, measured: Measure
) -> None:
    await world.start_relay(clean_up_after="never")
    async with world.database() as database:
        due = await database.fetchval("SELECT clock_timestamp() + interval '5 seconds'")
        emitter = Emitter()
        for _ in range(10):
            messages = [OutboxMessage("order.due", None, eta=due)] * 1000
            await commit(world, database, emitter, messages)
        measured("seconds until all had arrived", await world.everything_arrives())
        assert await world.close_the_books() == 0
        early = await database.fetchval("SELECT count(*) FROM outbox_table WHERE sent_at < send_after")
        assert early == 0
        took = await database.fetchval(
            "SELECT extract(epoch FROM max(sent_at) - $1)::float8 FROM outbox_table", due
        )
        measured("seconds from their instant to the last claim", took)
        assert await database.fetchval("SELECT count(DISTINCT send_after) FROM outbox_table") == 1
    arrivals = [arrival.at for arrival in world.ledger.arrivals]
    assert len(arrivals) == 10_000
    # The server is on this machine, so that its clock is ours.
    assert min(arrivals) >= due.timestamp()
    measured("seconds from their instant to the first", min(arrivals) - due.timestamp())
    measured("seconds from their instant to the last", max(arrivals) - due.timestamp())


async def commit(
    world: World, database: asyncpg.Connection, emitter: Emitter, messages: Sequence[OutboxMessage]
) -> None:
    async with database.transaction():
        ids = await emitter.bulk_emit(database, messages)
        await database.execute("INSERT INTO orders SELECT unnest($1::uuid[])", ids)
    world.ledger.committed |= {known: None for known in ids if known}
