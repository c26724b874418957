"""What claims pass by is found: late commits, and keys whose first row is no longer in the way."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from outbox import Emitter, OutboxMessage
from tests.integration.relaying import ONLY_WOKEN, Traffic, traffic_between


@pytest.fixture
async def traffic(postgres_url: str, rabbitmq_url: str) -> AsyncIterator[Traffic]:
    async with traffic_between(postgres_url, rabbitmq_url) as traffic:
        yield traffic


@contextlib.asynccontextmanager
async def open_transaction(traffic: Traffic) -> AsyncIterator[asyncpg.Connection]:
    """A transaction of an application of its own, whose time has begun."""
    connection = await asyncpg.connect(traffic.postgres_url)
    try:
        transaction = connection.transaction()
        await transaction.start()
        await connection.fetchval("SELECT now()")
        yield connection
        await transaction.commit()
    finally:
        await connection.close()


async def overtake(traffic: Traffic) -> None:
    """Have relays send what became due later, and longer ago than claims read again."""
    await traffic.inbox("a")
    await traffic.emit_many(20)
    await traffic.emit_many(20, ordering_key="other")
    await traffic.until_ids([], "routing_key = 'a'")
    await traffic.database.fetchval("SELECT pg_sleep(0.5)")
    await traffic.emit("a")
    await traffic.until_ids([], "routing_key = 'a'")


@pytest.mark.parametrize("options", [{}, {"listen": False}, {"lanes": 1, "batch_size": 1}], ids=str)
async def test_a_message_that_is_committed_late_is_sent(traffic: Traffic, options: dict[str, Any]) -> None:
    inbox = await traffic.inbox("late")
    await traffic.relaying(**{**ONLY_WOKEN, "poll_interval": 0.2, **options})
    async with open_transaction(traffic) as application:
        sent = [
            str(await Emitter().emit(application, "late", 1)),
            str(await Emitter().emit(application, "late", 2, ordering_key="late")),
            str(await Emitter().emit(application, "late", 3, ordering_key="late")),
        ]
        await overtake(traffic)
    await inbox.gets(sent)
    assert sorted(inbox.ids) == sorted(sent)
    assert inbox.ids.index(sent[1]) < inbox.ids.index(sent[2])


async def test_many_messages_that_are_committed_late_are_sent_in_order(traffic: Traffic) -> None:
    inbox = await traffic.inbox("late")
    await traffic.relaying(**ONLY_WOKEN, lanes=1)
    async with open_transaction(traffic) as application:
        messages = [OutboxMessage("late", number) for number in range(5_000)]
        sent = [str(message_id) for message_id in await Emitter().bulk_emit(application, messages)]
        await overtake(traffic)
    await inbox.gets(sent)
    assert inbox.ids == sent


async def test_a_late_commit_is_sent_though_nobody_notifies_afterwards(traffic: Traffic) -> None:
    """The relay is awake when it is emitted, and nothing else comes."""
    inbox = await traffic.inbox("late")
    await traffic.inbox("a")
    await traffic.relaying(**ONLY_WOKEN)
    await traffic.emit_many(2_000)
    async with open_transaction(traffic) as application:
        sent = str(await Emitter().emit(application, "late", 1))
        await traffic.until_ids([], "routing_key = 'a'")
        await asyncio.sleep(0.5)
    await inbox.gets([sent])


async def held(traffic: Traffic, **first: str) -> list[str]:
    """A key that waits for its first row; returns the ids of all of its rows."""
    rows = [await traffic.insert(ordering_key="'k'", **first)]
    rows += [await traffic.insert(ordering_key="'k'", body=f"'{number}'") for number in range(3)]
    return rows


@pytest.mark.parametrize(
    ("first", "change", "is_sent"),
    [
        ({"parked_at": "now()"}, "DELETE FROM outbox_table WHERE message_id = $1", False),
        ({"parked_at": "now()"}, "UPDATE outbox_table SET parked_at = NULL WHERE message_id = $1", True),
        ({"parked_at": "now()"}, "UPDATE outbox_table SET sent_at = now() WHERE message_id = $1", False),
        (
            {"send_after": "now() + interval '1 day'"},
            "DELETE FROM outbox_table WHERE message_id = $1",
            False,
        ),
        (
            {"send_after": "now() + interval '1 day'"},
            "UPDATE outbox_table SET send_after = now() WHERE message_id = $1",
            True,
        ),
    ],
    ids=["purged", "unparked", "marked", "cancelled", "sooner"],
)
async def test_a_key_flows_when_its_first_row_is_out_of_the_way(
    traffic: Traffic, first: dict[str, str], change: str, is_sent: bool
) -> None:
    inbox = await traffic.inbox("a")
    rows = await held(traffic, **first)
    # As soon as it polls: nothing notifies of a row that is deleted.
    await traffic.relaying(notification_timeout=1)
    other = await traffic.emit("a", ordering_key="other")
    await inbox.gets([other])
    await traffic.until_it_notifies()
    await traffic.database.execute(change, rows[0])
    expected = rows if is_sent else rows[1:]
    await inbox.gets(expected)
    assert [message_id for message_id in inbox.ids if message_id in rows] == expected


async def test_a_key_flows_after_its_backoff(traffic: Traffic) -> None:
    first = await traffic.emit("nowhere", ordering_key="k")
    following = [await traffic.emit("a", number, ordering_key="k") for number in range(3)]
    await traffic.relaying(**ONLY_WOKEN, max_attempts=100)
    await traffic.until_table(
        f"(SELECT attempts > 1 FROM outbox_table WHERE message_id = '{first}')", "an attempt that fails"
    )
    inbox = await traffic.inbox("#")
    await inbox.gets([first, *following])
    assert inbox.ids == [first, *following]


async def test_rows_that_another_session_has_locked_are_sent_when_it_is_done(traffic: Traffic) -> None:
    inbox = await traffic.inbox("a")
    plain = await traffic.emit("a")
    keyed = [await traffic.emit("a", ordering_key="k") for _ in range(2)]
    async with open_transaction(traffic) as application:
        await application.execute("SELECT FROM outbox_table FOR UPDATE")
        await traffic.relaying(**ONLY_WOKEN)
        free = await traffic.emit("a")
        await inbox.gets([free])
        await traffic.until_it_notifies()
    await inbox.gets([plain, *keyed])
    assert sorted(inbox.ids) == sorted([free, plain, *keyed])


async def test_ten_thousand_keys_flow_through_two_relays_in_order(traffic: Traffic) -> None:
    inbox = await traffic.inbox("#")
    keys, each = 10_000, 2
    messages = [OutboxMessage("a", number, ordering_key=f"k{number % keys}") for number in range(keys * each)]
    sent = await traffic.emit_all(messages)
    for _ in range(2):
        await traffic.relaying()
    await inbox.gets(sent)
    assert len(inbox.ids) == len(sent)
    place = {message_id: number for number, message_id in enumerate(inbox.ids)}
    for number in range(keys):
        assert place[sent[number]] < place[sent[number + keys]]


async def test_a_table_without_the_index_for_keys_works(
    traffic: Traffic, caplog: pytest.LogCaptureFixture
) -> None:
    """It was made by an earlier version, and the relays are upgraded first."""
    await traffic.database.execute("DROP INDEX outbox_table_keyed_idx")
    inbox = await traffic.inbox("#")
    await traffic.relaying(auto_create_table=False)
    assert "outbox_table_keyed_idx" in caplog.text
    sent = [await traffic.emit("a"), *[await traffic.emit("a", ordering_key="k") for _ in range(3)]]
    await inbox.gets(sent)


async def test_rows_due_since_minus_infinity_are_passed_page_by_page(traffic: Traffic) -> None:
    """A person wrote them, and their key is stuck: the relay gets past them, and sleeps."""
    await traffic.insert(ordering_key="'stuck'", send_after="'-infinity'", parked_at="now()")
    await traffic.database.execute(
        "INSERT INTO outbox_table (routing_key, body, ordering_key, send_after) "
        "SELECT 'a', '', 'stuck', '-infinity' FROM generate_series(1, 20000)"
    )
    inbox = await traffic.inbox("a")
    moments = ("'-infinity'", "now()")
    sent = [await traffic.insert(ordering_key="'k'", send_after=moment) for moment in moments]
    await traffic.relaying(**ONLY_WOKEN)
    await inbox.gets(sent)
    await traffic.until_it_notifies()
    assert inbox.ids == sent
