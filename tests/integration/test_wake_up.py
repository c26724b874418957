"""The protocol of docs/wake-up.md, interleaved at each of its steps.

The clock never wakes these relays, within the time of a test: what arrives was announced, or looked for.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, get_args

import asyncpg
import pytest

from outbox import Emitter, schema
from outbox.schema.trigger import former_function_source
from outbox_relay.wake import WakeReason
from outbox_relay.watch import Watch
from tests.integration.relaying import ONLY_WOKEN, Traffic, traffic_between
from tests.integration.sleeping import try_to_sleep

_BARRIER = 4711


@pytest.fixture
async def traffic(
    postgres_url: str, rabbitmq_url: str, caplog: pytest.LogCaptureFixture
) -> AsyncIterator[Traffic]:
    caplog.set_level(logging.INFO, "outbox")
    async with traffic_between(postgres_url, rabbitmq_url) as traffic:
        yield traffic


@asynccontextmanager
async def session(traffic: Traffic) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(traffic.postgres_url)
    try:
        yield connection
    finally:
        await connection.close()


async def emitted(connection: Any, **options: Any) -> str:
    return str(await Emitter().emit(connection, "a", None, **options))


async def committed(connection: Any) -> str:
    async with connection.transaction():
        return await emitted(connection)


async def test_nobody_falls_asleep_before_what_was_emitted_unannounced_can_be_seen(traffic: Traffic) -> None:
    async with session(traffic) as relay, session(traffic) as application:
        transaction = application.transaction()
        await transaction.start()
        message_id = await emitted(application)
        assert not await try_to_sleep(relay)
        await transaction.commit()
        assert await try_to_sleep(relay)
        ids = await relay.fetch("SELECT message_id::text FROM outbox_table")
        assert [row["message_id"] for row in ids] == [message_id]


async def test_a_savepoint_that_is_rolled_back_keeps_nobody_awake(traffic: Traffic) -> None:
    async with session(traffic) as relay, session(traffic) as application, application.transaction():
        savepoint = application.transaction()
        await savepoint.start()
        await emitted(application)
        assert not await try_to_sleep(relay)
        await savepoint.rollback()
        assert await try_to_sleep(relay)


async def test_what_a_released_savepoint_emitted_counts_until_the_commit(traffic: Traffic) -> None:
    async with session(traffic) as relay, session(traffic) as application:
        async with application.transaction():
            async with application.transaction():
                await emitted(application)
            assert not await try_to_sleep(relay)
        assert await try_to_sleep(relay)


async def test_emits_of_other_tables_are_none_of_its_business(traffic: Traffic) -> None:
    await schema.create(traffic.database, "other_table")
    async with session(traffic) as relay, session(traffic) as application, application.transaction():
        await Emitter(table_name="other_table").emit(application, "a", None)
        assert await try_to_sleep(relay)


async def test_an_open_transaction_that_has_emitted_delays_no_other_message(traffic: Traffic) -> None:
    inbox = await traffic.inbox("#")
    await traffic.relaying(**ONLY_WOKEN)
    await traffic.until_it_notifies()
    await inbox.gets([await traffic.emit("a")])
    async with session(traffic) as application:
        transaction = application.transaction()
        await transaction.start()
        waiting = await emitted(application)
        for _ in range(3):
            await inbox.gets([await traffic.emit("a")])
        await transaction.commit()
        await inbox.gets([waiting])
    await traffic.until_it_notifies()


async def test_a_transaction_that_emitted_before_the_relay_began_is_waited_for(traffic: Traffic) -> None:
    inbox = await traffic.inbox("#")
    async with session(traffic) as application:
        transaction = application.transaction()
        await transaction.start()
        early = await emitted(application)
        await traffic.relaying(**ONLY_WOKEN)
        # Several tries to fall asleep are in vain.
        await traffic.until_metric(10, "outbox_wakeups_total", reason="flow")
        await inbox.gets([await traffic.emit("a")])
        await transaction.commit()
        await inbox.gets([early])
    await traffic.until_it_notifies()


@pytest.mark.parametrize("timing", ["BEFORE INSERT", "AFTER INSERT"])
async def test_a_statement_during_which_the_relay_falls_asleep_is_announced(
    traffic: Traffic, timing: str
) -> None:
    """The emitter stops in its INSERT, before our trigger fires and after; their names tell the order."""
    inbox = await traffic.inbox("#")
    await traffic.database.execute(
        f"""
        CREATE FUNCTION barrier() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_advisory_xact_lock_shared({_BARRIER}); RETURN NEW; END $$;
        CREATE TRIGGER zz_barrier {timing} ON outbox_table FOR EACH ROW EXECUTE FUNCTION barrier();
        """
    )
    async with session(traffic) as barrier, session(traffic) as application:
        await barrier.execute(f"SELECT pg_advisory_lock({_BARRIER})")
        emitting = asyncio.create_task(committed(application))
        await traffic.until_table(
            "EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)", "the emitter to stop"
        )
        await traffic.relaying(**ONLY_WOKEN)
        await traffic.until_it_notifies()
        await barrier.execute("SELECT pg_advisory_unlock_all()")
        await inbox.gets([await emitting])


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_message_committed_around_the_moment_of_falling_asleep_is_sent(
    traffic: Traffic, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Before the lock nobody notifies, and the look finds it; between the lock and the look it notifies."""
    inbox = await traffic.inbox("#")
    sent: list[str] = []
    falling: Callable[[Watch], Any] = Watch._fall_asleep

    async def fall_asleep(watch: Watch) -> None:
        if moment == "before":
            sent.append(await traffic.emit("a"))
        await falling(watch)
        if moment == "after":
            assert watch.is_asleep
            sent.append(await traffic.emit("a"))
        monkeypatch.setattr(Watch, "_fall_asleep", falling)

    monkeypatch.setattr(Watch, "_fall_asleep", fall_asleep)
    await traffic.relaying(**ONLY_WOKEN)
    await traffic.until(lambda: len(sent) == 1, "the relay to fall asleep")
    await inbox.gets(sent)


async def test_a_timer_moved_in_a_partition_wakes_the_relay(postgres_url: str, rabbitmq_url: str) -> None:
    database = await asyncpg.connect(postgres_url)
    await database.execute(
        schema.create_sql("plain")
        + """
        CREATE TABLE outbox_table (LIKE plain INCLUDING DEFAULTS INCLUDING GENERATED INCLUDING IDENTITY,
            PRIMARY KEY (id, routing_key)) PARTITION BY LIST (routing_key);
        CREATE TABLE outbox_part PARTITION OF outbox_table DEFAULT;
        """
    )
    await database.close()
    async with traffic_between(postgres_url, rabbitmq_url) as traffic:
        inbox = await traffic.inbox("#")
        await traffic.relaying(**ONLY_WOKEN)
        await traffic.until_it_notifies()
        message_id = await traffic.insert(send_after="now() + interval '1 day'")
        await traffic.database.execute("UPDATE outbox_table SET send_after = now()")
        await inbox.gets([message_id])


async def test_while_messages_flow_nobody_notifies(traffic: Traffic) -> None:
    """A bulk that fills batches makes the relay stay awake; it lets go of the lock, and takes it again."""
    inbox = await traffic.inbox("#")
    await traffic.relaying(**ONLY_WOKEN, batch_size=10)
    await traffic.until_it_notifies()
    released = asyncio.Event()
    async with session(traffic) as application:
        sent = await traffic.emit_many(500)
        async with asyncio.timeout(60):
            while not released.is_set():
                # As an emitter does; it succeeds while the relay is awake.
                if await application.fetchval(
                    f"SELECT pg_try_advisory_lock_shared({schema.ASLEEP_LOCK}, "
                    "'outbox_table'::regclass::oid::int4)"
                ):
                    released.set()
                else:
                    sent += await traffic.emit_many(100)
        await application.execute("SELECT pg_advisory_unlock_all()")
    await inbox.gets(sent)
    await traffic.until_it_notifies()


async def test_a_relay_that_leaves_hands_over(traffic: Traffic) -> None:
    inbox = await traffic.inbox("#")
    first = await traffic.relaying(**ONLY_WOKEN)
    await traffic.until_it_notifies()
    await traffic.relaying(**ONLY_WOKEN)
    await traffic.until_asleep(lanes=4)
    await first.stop()
    await traffic.until_it_notifies()
    await inbox.gets([await traffic.emit("a")])


async def test_the_others_take_over_from_a_relay_whose_session_is_gone(traffic: Traffic) -> None:
    inbox = await traffic.inbox("#")
    for _ in range(3):
        await traffic.relaying(**ONLY_WOKEN)
    await traffic.until_it_notifies()
    for _ in range(3):
        await traffic.database.execute(
            f"""
            SELECT pg_terminate_backend(pid) FROM pg_locks
            WHERE locktype = 'advisory' AND classid = {schema.DUTY_LOCK} AND granted
            """
        )
        await inbox.gets([await traffic.emit("a")])
        await traffic.until_it_notifies()


@pytest.mark.parametrize("relays", [1, 3])
async def test_every_message_is_sent_however_emitters_and_naps_fall_together(
    traffic: Traffic, monkeypatch: pytest.MonkeyPatch, relays: int
) -> None:
    """Only the protocol wakes them: those that stand by neither check nor look by the clock."""
    monkeypatch.setattr(Watch, "_check_later", lambda _: None)
    inbox = await traffic.inbox("#")
    for _ in range(relays):
        await traffic.relaying(**ONLY_WOKEN)
    await traffic.until_it_notifies()
    chance = random.Random(relays)  # noqa: S311 - no secret
    sent: list[str] = []

    async def emit_now_and_then() -> None:
        async with session(traffic) as application:
            for _ in range(40):
                transaction = application.transaction()
                await transaction.start()
                message_id = await emitted(application)
                await asyncio.sleep(chance.choice((0, 0, 0.002, 0.02, 0.1)))
                if chance.random() < 0.2:
                    await transaction.rollback()
                else:
                    await transaction.commit()
                    sent.append(message_id)
                await asyncio.sleep(chance.choice((0, 0.004, 0.01, 0.03, 0.15)))

    async with asyncio.TaskGroup() as group:
        for _ in range(6):
            group.create_task(emit_now_and_then())
    await inbox.gets(sent)
    assert sorted(inbox.ids) == sorted(sent)
    assert traffic.metric("outbox_wakeups_total", reason="poll") == 0


async def test_nothing_in_an_emitters_search_path_is_called(traffic: Traffic) -> None:
    """A role that may create functions must not get others to call them."""
    await traffic.database.execute(
        """
        CREATE SCHEMA planted;
        CREATE TABLE planted.called (who text);
        CREATE FUNCTION planted.pg_notify(text, text) RETURNS void LANGUAGE plpgsql AS
            $$ BEGIN INSERT INTO planted.called VALUES ('pg_notify'); END $$;
        CREATE FUNCTION planted.quote_ident(name) RETURNS text LANGUAGE plpgsql AS
            $$ BEGIN INSERT INTO planted.called VALUES ('quote_ident'); RETURN 'x'; END $$;
        CREATE FUNCTION planted.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS
            $$ BEGIN INSERT INTO planted.called VALUES ('clock_timestamp'); RETURN now(); END $$;
        CREATE FUNCTION planted.pg_try_advisory_xact_lock_shared(integer, integer) RETURNS boolean
            LANGUAGE plpgsql AS $$ BEGIN INSERT INTO planted.called VALUES ('lock'); RETURN true; END $$;
        CREATE FUNCTION planted.less(timestamptz, timestamptz) RETURNS boolean LANGUAGE plpgsql AS
            $$ BEGIN INSERT INTO planted.called VALUES ('<='); RETURN false; END $$;
        CREATE OPERATOR planted.<= (LEFTARG = timestamptz, RIGHTARG = timestamptz, FUNCTION = planted.less);
        CREATE VIEW planted.pg_class AS SELECT 0::oid AS oid, 'x'::name AS relname, 0::oid AS relnamespace;
        """
    )
    async with session(traffic) as relay, session(traffic) as application:
        heard: asyncio.Queue[str] = asyncio.Queue()
        await relay.add_listener("outbox_channel", lambda *news: heard.put_nowait(news[-1]))
        assert await try_to_sleep(relay)
        await application.execute("SET search_path = planted, public, pg_catalog")
        await application.execute("INSERT INTO public.outbox_table (routing_key, body) VALUES ('a', '')")
        async with asyncio.timeout(60):
            assert await heard.get() == "public.outbox_table"
    assert await traffic.database.fetch("SELECT who FROM planted.called") == []


async def test_a_relay_works_with_the_triggers_of_the_version_before(traffic: Traffic) -> None:
    """And it goes on while they are upgraded."""
    inbox = await traffic.inbox("#")
    former = former_function_source(schema.DEFAULT_CHANNEL)
    await traffic.database.execute(
        "CREATE OR REPLACE FUNCTION outbox_table_notify() RETURNS trigger LANGUAGE plpgsql"
        f" AS $former${former}$former$"
    )
    problems = await schema.check(traffic.database)
    assert [problem.kind for problem in problems] == ["older_trigger", "older_trigger"]
    await traffic.relaying(**ONLY_WOKEN)
    await traffic.until_it_notifies()
    sent = [await traffic.emit("a")]
    await inbox.gets(sent)
    async with session(traffic) as application:
        # A transaction that has emitted by the former function, and commits after the upgrade.
        async with application.transaction():
            sent.append(await emitted(application))
            await schema.upgrade(traffic.database)
        await inbox.gets(sent)
    assert await schema.check(traffic.database) == []
    await traffic.until_it_notifies()
    await inbox.gets([await traffic.emit("a")])


async def test_a_relay_of_the_version_before_is_notified_beside_one_that_sleeps(traffic: Traffic) -> None:
    """It listens and takes no lock: alone it hears of nothing, and finds messages by its own look."""
    inbox = await traffic.inbox("#")
    async with session(traffic) as former:
        heard: asyncio.Queue[str] = asyncio.Queue()
        await former.add_listener(schema.DEFAULT_CHANNEL, lambda *news: heard.put_nowait(news[-1]))
        alone = await traffic.emit("a")
        await traffic.database.execute(f"SELECT pg_notify('{schema.DEFAULT_CHANNEL}', 'marker')")
        async with asyncio.timeout(60):
            assert await heard.get() == "marker"

        await traffic.relaying(**ONLY_WOKEN)
        await inbox.gets([alone])
        await traffic.until_it_notifies()
        while not heard.empty():
            heard.get_nowait()
        beside = await traffic.emit("a")
        await inbox.gets([beside])
        async with asyncio.timeout(60):
            while await heard.get() != "public.outbox_table":
                pass
    assert inbox.ids == [alone, beside]


async def test_never_means_a_table_without_triggers(traffic: Traffic) -> None:
    inbox = await traffic.inbox("#")
    problems = await schema.check(traffic.database, notify=False)
    assert {problem.kind for problem in problems} == {"unwanted_trigger"}
    await schema.upgrade(traffic.database, notify=False)
    assert await schema.check(traffic.database, notify=False) == []
    assert {problem.kind for problem in await schema.check(traffic.database)} == {"missing_trigger"}
    await schema.create(traffic.database, notify=False)
    await traffic.relaying(notify="never", poll_interval=0.3)
    for _ in range(3):
        await inbox.gets([await traffic.emit("a")])
    assert not await traffic.database.fetchval(
        "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name LIKE 'outbox-relay-listen%')"
    )
    await schema.upgrade(traffic.database)
    assert await schema.check(traffic.database) == []


async def test_a_notification_wakes_one_of_several_relays(
    traffic: Traffic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Watch, "_check_later", lambda _: None)
    inbox = await traffic.inbox("#")
    for _ in range(4):
        await traffic.relaying(**ONLY_WOKEN)
    await traffic.until_it_notifies()
    await traffic.until_asleep(lanes=8)
    before = woken(traffic)
    for _ in range(10):
        await inbox.gets([await traffic.emit("a")])
        await traffic.until_it_notifies()
    assert woken(traffic) - before <= 2 * 10


def woken(traffic: Traffic) -> float:
    """How often a lane was woken to claim."""
    reasons = get_args(WakeReason)
    return sum(traffic.metric("outbox_wakeups_total", reason=reason) for reason in reasons)
