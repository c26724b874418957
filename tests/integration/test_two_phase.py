"""Messages emitted in a transaction that is prepared and committed later: NOTIFY is refused there.

The clock never wakes these relays, within the time of a test.
"""

import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from outbox import Emitter, SyncEmitter, schema
from outbox_relay.key_bounds import LOWEST_ID, KeyBounds
from tests.integration.claiming import QUERIES
from tests.integration.relaying import ONLY_WOKEN, Traffic, traffic_between
from tests.integration.sleeping import asleep, try_to_sleep

ANNOUNCE = "SET LOCAL outbox.two_phase = 'on'"
NOTIFY = "SELECT pg_notify('outbox_channel', 'public.outbox_table')"


@pytest.fixture
async def traffic(
    lone_url: str, rabbitmq_url: str, caplog: pytest.LogCaptureFixture
) -> AsyncIterator[Traffic]:
    caplog.set_level(logging.INFO, "outbox")
    async with traffic_between(lone_url, rabbitmq_url) as traffic:
        yield traffic


@pytest.fixture(params=["psycopg", "psycopg2"])
def engine(lone_url: str, request: pytest.FixtureRequest) -> Iterator[Engine]:
    engine = create_engine(lone_url.replace("postgresql://", f"postgresql+{request.param}://"))
    yield engine
    engine.dispose()


async def prepare(connection: Any, gid: str, *, announced: bool = True) -> str:
    """Emit in a transaction that is prepared under this name."""
    await connection.execute("BEGIN")
    if announced:
        await connection.execute(ANNOUNCE)
    message_id = str(await Emitter().emit(connection, "a", None))
    await connection.execute(f"PREPARE TRANSACTION '{gid}'")
    return message_id


async def test_a_relay_that_is_awake_waits_for_what_is_prepared(traffic: Traffic) -> None:
    """It stays awake until the commit, so that nobody has to announce it."""
    inbox = await traffic.inbox("#")
    await traffic.relaying(**ONLY_WOKEN)
    message_id = await prepared_while_awake(traffic)
    looks = traffic.metric("outbox_wakeups_total", reason="flow")
    await traffic.until_metric(looks + 5, "outbox_wakeups_total", reason="flow")
    assert message_id not in inbox.ids
    await traffic.database.execute("COMMIT PREPARED 'awake'")
    await inbox.gets([message_id])
    await traffic.until_it_notifies()


async def prepared_while_awake(traffic: Traffic) -> str:
    # Flowing messages keep it awake; a try while it sleeps is refused, as nothing announces two phases.
    while True:
        await traffic.emit_many(500)
        try:
            return await prepare(traffic.database, "awake", announced=False)
        except asyncpg.FeatureNotSupportedError:
            assert await traffic.database.fetchval("SELECT count(*) FROM pg_prepared_xacts") == 0


async def test_a_prepared_transaction_keeps_the_relay_awake_and_a_rolled_back_one_does_not(
    traffic: Traffic,
) -> None:
    relay = await asyncpg.connect(traffic.postgres_url)
    await prepare(traffic.database, "undecided")
    assert not await try_to_sleep(relay)
    await traffic.database.execute("ROLLBACK PREPARED 'undecided'")
    assert await try_to_sleep(relay)
    await relay.close()


async def test_a_transaction_that_announces_two_phases_can_be_prepared_while_the_relay_sleeps(
    traffic: Traffic,
) -> None:
    """Whoever commits it may wake the relay; otherwise it looks after `notification_timeout`."""
    inbox = await traffic.inbox("#")
    await traffic.relaying(**ONLY_WOKEN)
    await traffic.until_it_notifies()
    message_id = await prepare(traffic.database, "asleep")
    await traffic.until_it_notifies()
    await traffic.database.execute("COMMIT PREPARED 'asleep'")
    await traffic.database.execute(NOTIFY)
    await inbox.gets([message_id])


async def test_the_next_notification_brings_what_was_committed_in_two_phases(traffic: Traffic) -> None:
    inbox = await traffic.inbox("#")
    await traffic.relaying(**ONLY_WOKEN)
    await traffic.until_it_notifies()
    message_id = await prepare(traffic.database, "asleep")
    await traffic.database.execute("COMMIT PREPARED 'asleep'")
    await inbox.gets([await traffic.emit("a"), message_id])


async def test_the_clock_brings_what_was_committed_in_two_phases(traffic: Traffic) -> None:
    inbox = await traffic.inbox("#")
    await traffic.relaying(notification_timeout=1, poll_interval=300)
    await traffic.until_it_notifies()
    message_id = await prepare(traffic.database, "asleep")
    await traffic.database.execute("COMMIT PREPARED 'asleep'")
    await inbox.gets([message_id])


async def test_a_timer_moved_in_two_phases_can_be_prepared_while_somebody_sleeps(traffic: Traffic) -> None:
    await traffic.insert(send_after="now() + interval '1 day'")
    async with asleep(traffic.postgres_url):
        await traffic.database.execute(f"BEGIN; {ANNOUNCE}")
        await traffic.database.execute("UPDATE outbox_table SET send_after = now()")
        await traffic.database.execute("PREPARE TRANSACTION 'sooner'")
    await traffic.database.execute("COMMIT PREPARED 'sooner'")


async def test_the_announcement_ends_with_its_transaction(traffic: Traffic) -> None:
    inbox = await traffic.inbox("#")
    await traffic.relaying(**ONLY_WOKEN)
    await traffic.until_it_notifies()
    message_id = await prepare(traffic.database, "asleep")
    await traffic.database.execute("COMMIT PREPARED 'asleep'")
    # In the same session, and by its own notification.
    later = await traffic.emit("a")
    await inbox.gets([message_id, later])


async def test_sqlalchemy_announces_two_phases_by_itself(traffic: Traffic, engine: Engine) -> None:
    async with asleep(traffic.postgres_url):
        with Session(engine, twophase=True) as session:
            emitted = [SyncEmitter().emit(session, "a", None)]
            with session.begin_nested() as savepoint:
                SyncEmitter().emit(session, "a", None)
                savepoint.rollback()
            emitted.append(SyncEmitter().emit(session, "a", None))
            session.prepare()
            assert await traffic.ids() == []
            session.commit()
        with engine.connect() as connection:
            transaction = connection.begin_twophase()
            emitted.append(SyncEmitter().emit(connection, "a", None))
            transaction.prepare()
            transaction.commit()
    assert await traffic.ids() == [str(message_id) for message_id in emitted]


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
async def test_an_async_session_of_sqlalchemy_announces_two_phases_by_itself(
    traffic: Traffic, driver: str
) -> None:
    engine = create_async_engine(traffic.postgres_url.replace("postgresql://", f"postgresql+{driver}://"))
    async with asleep(traffic.postgres_url), AsyncSession(engine, twophase=True) as session:
        message_id = await Emitter().emit(session, "a", None)
        await session.commit()
    await engine.dispose()
    assert await traffic.ids() == [str(message_id)]


async def test_a_table_without_triggers_can_always_be_prepared(traffic: Traffic) -> None:
    inbox = await traffic.inbox("#")
    await schema.upgrade(traffic.database, notify=False)
    await traffic.relaying(notify="never", poll_interval=0.2)
    message_id = await prepare(traffic.database, "never", announced=False)
    await traffic.database.execute("COMMIT PREPARED 'never'")
    await inbox.gets([message_id])


async def read_writers(traffic: Traffic, bounds: KeyBounds) -> None:
    """Tell the bounds of ordering keys which transactions write to the table now."""
    epoch = bounds.begin_epoch()
    rows = await traffic.database.fetch(QUERIES.writers, "outbox_table")
    bounds.writers(epoch, {row["writer"] for row in rows})


async def test_a_transaction_that_is_prepared_is_still_the_writer_that_it_was(traffic: Traffic) -> None:
    """It may yet commit a row with a lower id than those of its key that were sent."""
    bounds = KeyBounds()
    bounds.first("k", 5, bounds.ended_epoch)
    application = await asyncpg.connect(traffic.postgres_url)
    try:
        await application.execute("BEGIN")
        await Emitter().emit(application, "a", None, ordering_key="k")
        await read_writers(traffic, bounds)
        await application.execute("PREPARE TRANSACTION 'writer'")
    finally:
        await application.close()
    for _ in range(3):
        await read_writers(traffic, bounds)
    bounds.first("k", 7, bounds.ended_epoch)
    assert bounds.of("k") == LOWEST_ID
    await traffic.database.execute("COMMIT PREPARED 'writer'")
    await read_writers(traffic, bounds)
    bounds.first("k", 8, bounds.ended_epoch)
    assert bounds.of("k") == 5
