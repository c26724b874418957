"""Connections that are closed under a relay, one after the other, while it works and while it is idle."""

import os
import signal

import asyncpg
import pytest

from tests.chaos.conftest import Measure
from tests.chaos.waiting import eventually
from tests.chaos.world import World

BATCH, LANES = 50, 2
IN_FLIGHT = BATCH * LANES


async def sessions(database: asyncpg.Connection, name: str) -> set[int]:
    """The process ids of the sessions of this name."""
    rows = await database.fetch(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1", name
    )
    return {row["pid"] for row in rows}


async def terminate(database: asyncpg.Connection, name: str) -> set[int]:
    """End the sessions of this name, as an administrator does; which ones."""
    ended = await sessions(database, name)
    await database.execute("SELECT pg_terminate_backend(pid) FROM unnest($1::integer[]) AS pid", ended)
    return ended


async def test_database_sessions_ended_under_load_cost_nothing(world: World, measured: Measure) -> None:
    relay = await world.start_relay(batch_size=BATCH, lanes=LANES)
    names = ("outbox-relay", "outbox-relay-listen", "outbox-relay-upkeep")
    rounds, ended = 4, 0
    async with world.load(), world.database() as database:
        for _ in range(rounds):
            for name in names:
                ended += len(await terminate(database, name))
                seconds = await world.more_arrive(50)
                measured(f"seconds until 50 more had arrived after {name} was ended", seconds)
    duplicates = await world.close_the_books()
    measured(f"duplicates among {len(world.ledger.committed)} after {ended} ended sessions", duplicates)
    assert ended >= len(names)
    assert duplicates <= rounds * IN_FLIGHT
    assert not relay.is_running


@pytest.mark.parametrize("name", ["outbox-relay", "outbox-relay-listen"])
async def test_an_idle_relay_replaces_a_session_that_was_ended(
    world: World, measured: Measure, name: str
) -> None:
    relay = await world.start_relay(notification_timeout=150)
    await world.application().emit(10)
    await world.everything_arrives()
    async with world.database() as database:
        ended: set[int] = set()

        async def is_there() -> bool:
            return bool(await sessions(database, name) - ended)

        await eventually(f"there is a session {name}", is_there)
        ended |= await terminate(database, name)
        seconds = await eventually(f"there is a session {name} again", is_there)
        measured(f"seconds until there was a session {name} again", seconds)
    await relay.ready()
    await world.application().emit(10)
    measured("seconds until the next message arrived", await world.everything_arrives())
    assert await world.close_the_books() == 0


async def test_broker_connections_closed_under_load_lose_nothing(world: World, measured: Measure) -> None:
    rounds = 3
    await world.start_relay(batch_size=BATCH, lanes=LANES)
    closed: set[str] = set()

    async def is_back() -> bool:
        return bool(await world.relay_connections() - closed)

    async with world.load():
        for _ in range(rounds):
            await eventually("the relay has a connection that was not closed", is_back)
            for name in await world.relay_connections() - closed:
                await world.close_connection(name)
                closed.add(name)
            measured("seconds until 50 more had arrived", await world.more_arrive(50))
    duplicates = await world.close_the_books()
    measured(f"duplicates among {len(world.ledger.committed)} after {len(closed)} closed", duplicates)
    assert len(closed) >= rounds
    assert duplicates <= len(closed) * IN_FLIGHT


async def test_frozen_database_sessions_are_replaced(world: World, measured: Measure) -> None:
    relay = await world.start_relay(publish_timeout=1, notification_timeout=5)
    await world.application().emit(10)
    await world.everything_arrives()
    async with world.database() as database:
        frozen = [
            pid
            for name in ("outbox-relay", "outbox-relay-listen", "outbox-relay-upkeep")
            for pid in await sessions(database, name)
        ]
        assert len(frozen) >= LANES + 1
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        try:
            await world.application().emit(10)
            measured("seconds until the messages had arrived", await world.everything_arrives())
            assert await relay.terminate() == 0, relay.log
        finally:
            for pid in frozen:
                os.kill(pid, signal.SIGCONT)
    assert await world.close_the_books() == 0


async def test_a_relay_whose_rows_somebody_locks_is_not_ready(world: World) -> None:
    relay = await world.start_relay(poll_interval=0.5)
    async with world.database() as database:
        # Due a while after it can be locked.
        await database.execute(
            "INSERT INTO outbox_table (routing_key, body, send_after)"
            " VALUES ('order.placed', '1', now() + interval '2 seconds')"
        )
        async with database.transaction():
            await database.execute("SELECT FROM outbox_table FOR UPDATE")
            assert "progress: 1 messages are due, and none has been sent" in await relay.unready("progress")
        await relay.ready()
