"""What makes an idle relay look at the table again. The clock alone would take minutes in most of these."""

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import asyncpg
import pytest

from outbox import Emitter
from tests.integration.relaying import ONLY_WOKEN, Traffic, traffic_between


@pytest.fixture
async def traffic(
    postgres_url: str, rabbitmq_url: str, caplog: pytest.LogCaptureFixture
) -> AsyncIterator[Traffic]:
    caplog.set_level(logging.INFO, "outbox")
    async with traffic_between(postgres_url, rabbitmq_url) as traffic:
        yield traffic


async def until_it_listens(traffic: Traffic, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever connects for LISTEN looks at the table once more; after that only a notification wakes."""
    await traffic.until(lambda: "LISTEN hears" in caplog.messages, "LISTEN to be proven")
    await traffic.until(lambda: traffic.metric("outbox_wakeups_total", reason="notify") > 0, "that look")
    await traffic.until_it_notifies()
    await traffic.until_asleep()


async def server_time(traffic: Traffic) -> datetime:
    now: datetime = await traffic.database.fetchval("SELECT clock_timestamp()")
    return now


async def test_a_notification_wakes_it(traffic: Traffic, caplog: pytest.LogCaptureFixture) -> None:
    inbox = await traffic.inbox("#")
    await traffic.relaying(**ONLY_WOKEN)
    await until_it_listens(traffic, caplog)
    sent = []
    for _ in range(3):
        sent.append(await traffic.emit("a"))
        await inbox.gets(sent)
        await traffic.until_asleep()
    assert inbox.ids == sent
    assert traffic.metric("outbox_wakeups_total", reason="poll") == 0


async def test_a_timer_fires_at_its_time_with_nothing_else_to_wake_it(
    traffic: Traffic, caplog: pytest.LogCaptureFixture
) -> None:
    inbox = await traffic.inbox("#")
    await traffic.relaying(**ONLY_WOKEN, clean_up_after="never")
    await until_it_listens(traffic, caplog)
    message_id = await traffic.emit("a", eta=300)
    await inbox.gets([message_id])
    arrived = await server_time(traffic)
    row = await traffic.row(message_id)
    assert row is not None
    assert row["send_after"] <= arrived
    await traffic.until_metric(1, "outbox_wakeups_total", reason="timer")


async def test_a_timer_that_was_there_before_the_relay_fires(traffic: Traffic) -> None:
    inbox = await traffic.inbox("#")
    message_id = await traffic.emit("a", eta=300)
    due: datetime = await traffic.database.fetchval("SELECT send_after FROM outbox_table")
    await traffic.relaying(**ONLY_WOKEN)
    await inbox.gets([message_id])
    assert await server_time(traffic) >= due


async def test_a_timer_set_by_somebody_else_while_it_sleeps_fires(
    traffic: Traffic, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    inbox = await traffic.inbox("#")
    later = await traffic.emit("a", eta=3_600_000)
    await traffic.relaying(**ONLY_WOKEN)
    await until_it_listens(traffic, caplog)
    somebody_else = await asyncpg.connect(postgres_url)
    due = await server_time(traffic) + timedelta(milliseconds=300)
    async with somebody_else.transaction():
        sooner = str(await Emitter().emit(somebody_else, "a", 1, eta=due))
    await somebody_else.close()
    await inbox.gets([sooner])
    assert await server_time(traffic) >= due
    assert inbox.ids == [sooner]
    await traffic.until_ids([later])


async def test_a_timer_moved_nearer_fires_at_its_new_time(
    traffic: Traffic, caplog: pytest.LogCaptureFixture
) -> None:
    inbox = await traffic.inbox("#")
    await traffic.emit("a", "old", timer_id="t", eta=3_600_000)
    await traffic.relaying(**ONLY_WOKEN)
    await until_it_listens(traffic, caplog)
    moved = await traffic.emit("a", "new", timer_id="t", eta=200, replace=True)
    message = await inbox.get(moved)
    assert message.body == b'"new"'
    assert inbox.ids == [moved]


async def test_without_listen_it_polls(traffic: Traffic) -> None:
    inbox = await traffic.inbox("#")
    await traffic.relaying(listen=False, notification_timeout=300, poll_interval=0.05)
    await traffic.until_asleep()
    sent = []
    for _ in range(3):
        sent.append(await traffic.emit("a"))
        await inbox.gets(sent)
    assert inbox.ids == sent
    assert traffic.metric("outbox_wakeups_total", reason="notify") == 0
    await traffic.until_metric(1, "outbox_wakeups_total", reason="poll")


@pytest.mark.parametrize("session", ["outbox-relay-listen", "outbox-relay"])
async def test_a_session_that_is_ended_loses_nothing(
    traffic: Traffic, caplog: pytest.LogCaptureFixture, session: str
) -> None:
    inbox = await traffic.inbox("#")
    await traffic.relaying(**ONLY_WOKEN)
    await until_it_listens(traffic, caplog)
    ended = await traffic.database.fetchval(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
        "WHERE datname = current_database() AND application_name = $1",
        session,
    )
    assert ended > 0
    sent = [await traffic.emit("a")]
    await inbox.gets(sent)
    await traffic.until(lambda: is_heard_again(caplog, session), "LISTEN to be proven again")
    sent.append(await traffic.emit("a"))
    await inbox.gets(sent)
    assert inbox.ids == sent


def is_heard_again(caplog: pytest.LogCaptureFixture, session: str) -> bool:
    return session != "outbox-relay-listen" or "LISTEN hears again" in caplog.messages


async def test_what_another_session_had_locked_is_sent_when_it_lets_go(
    traffic: Traffic, postgres_url: str
) -> None:
    inbox = await traffic.inbox("#")
    locked, keyed = await traffic.emit("a"), await traffic.emit("a", ordering_key="k")
    free = await traffic.emit("a")
    somebody_else = await asyncpg.connect(postgres_url)
    transaction = somebody_else.transaction()
    await transaction.start()
    await somebody_else.execute(
        "SELECT FROM outbox_table WHERE message_id = ANY ($1::uuid[]) FOR UPDATE", [locked, keyed]
    )
    await traffic.relaying(**ONLY_WOKEN)
    await inbox.gets([free])
    await traffic.until_asleep()
    assert inbox.ids == [free]
    # Nothing notifies of a rollback.
    await transaction.rollback()
    await inbox.gets([locked, keyed])
    await somebody_else.close()
    assert sorted(inbox.ids) == sorted([free, locked, keyed])


async def test_a_message_held_back_until_infinity_is_in_nobodys_way(
    traffic: Traffic, caplog: pytest.LogCaptureFixture
) -> None:
    inbox = await traffic.inbox("#")
    held = await traffic.insert(send_after="'infinity'")
    await traffic.insert(send_after="'infinity'", ordering_key="'k'")
    ancient = await traffic.insert(send_after="'-infinity'")
    await traffic.relaying(**ONLY_WOKEN)
    await until_it_listens(traffic, caplog)
    await inbox.gets([ancient, await traffic.emit("a", ordering_key="l")])
    await traffic.database.execute("UPDATE outbox_table SET send_after = now() WHERE message_id = $1", held)
    await inbox.gets([held])


async def test_what_is_committed_while_it_looks_is_not_overlooked(traffic: Traffic) -> None:
    """Many small transactions beside the relay's own looks, any of which may come at a bad moment."""
    inbox = await traffic.inbox("#")
    await traffic.relaying(**ONLY_WOKEN)
    sent = []
    for number in range(100):
        sent.append(await traffic.emit("a", number))
        await asyncio.sleep(0)
    await inbox.gets(sent)
    assert sorted(inbox.ids) == sorted(sent)


async def test_no_transaction_stays_open_while_it_sleeps(
    traffic: Traffic, caplog: pytest.LogCaptureFixture
) -> None:
    inbox = await traffic.inbox("#")
    await traffic.relaying(**ONLY_WOKEN)
    await until_it_listens(traffic, caplog)
    await inbox.gets([await traffic.emit("a"), await traffic.emit("a", ordering_key="k")])
    # Which includes that none of its sessions is in a transaction.
    await traffic.until_asleep()
