"""The order asked for with `ordering_key`, and that nobody else waits for it."""

import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from outbox import OutboxMessage
from tests.integration.relaying import FULL, Traffic, traffic_between


@pytest.fixture
async def traffic(postgres_url: str, rabbitmq_url: str) -> AsyncIterator[Traffic]:
    async with traffic_between(postgres_url, rabbitmq_url) as traffic:
        yield traffic


async def test_two_relays_keep_the_order_of_every_key(traffic: Traffic) -> None:
    inbox = await traffic.inbox("#")
    # Batches smaller than the number of keys, so that their turns come round.
    running = [await traffic.relaying(batch_size=7) for _ in range(2)]
    keys = [f"key-{number}" for number in range(20)] * 50
    random.shuffle(keys)
    messages = [OutboxMessage("a", number, ordering_key=key) for number, key in enumerate(keys)]
    sent = []
    for start in range(0, len(messages), 100):
        sent += await traffic.emit_all(messages[start : start + 100])
    await inbox.gets(sent)
    for each in running:
        await each.stop()

    assert Counter(inbox.ids) == Counter(sent)
    key_of = dict(zip(sent, keys, strict=True))
    assert by_key(inbox.ids, key_of) == by_key(sent, key_of)


def by_key(ids: list[str], key_of: dict[str, str]) -> dict[str, list[str]]:
    ledger = defaultdict(list)
    for message_id in ids:
        ledger[key_of[message_id]].append(message_id)
    return ledger


async def test_a_key_with_many_rows_is_in_order_beside_keyless_ones(traffic: Traffic) -> None:
    inbox = await traffic.inbox("#")
    keyed = await traffic.emit_many(30, ordering_key="k")
    keyless = await traffic.emit_many(30)
    await traffic.relaying()
    await inbox.gets(keyed + keyless)
    assert [message_id for message_id in inbox.ids if message_id in keyed] == keyed


async def test_a_parked_head_holds_back_its_own_key_only(traffic: Traffic) -> None:
    inbox = await traffic.inbox("a")
    head = await traffic.emit("nobody.listens", ordering_key="stuck")
    held = await traffic.emit_many(3, ordering_key="stuck")
    others = await traffic.emit_many(3, ordering_key="other")
    keyless = await traffic.emit_many(3)
    await traffic.relaying(unroutable_grace=0)
    await traffic.until_parked(head)
    await inbox.gets(others + keyless)
    await traffic.until_ids([head, *held])

    # A person decides that the others need not wait for it.
    await traffic.database.execute("DELETE FROM outbox_table WHERE parked_at IS NOT NULL")
    nudge = await traffic.emit("a", ordering_key="stuck")
    await inbox.gets([*held, nudge])
    assert [message_id for message_id in inbox.ids if message_id in {*held, nudge}] == [*held, nudge]


async def test_a_head_that_backs_off_holds_back_its_own_key_only(traffic: Traffic) -> None:
    full = await traffic.inbox("full", arguments=FULL, is_open=False)
    inbox = await traffic.inbox("a")
    await traffic.relaying()
    filling = await traffic.emit("full")
    await traffic.until_ids([])
    head = await traffic.emit("full", ordering_key="stuck")
    held = await traffic.emit_many(3, ordering_key="stuck")
    await traffic.until_table("(SELECT max(attempts) >= 2 FROM outbox_table)", "a second attempt at the head")
    others = await traffic.emit_many(3, ordering_key="other")
    keyless = await traffic.emit_many(3)
    await inbox.gets(others + keyless)
    assert not set(held) & set(inbox.ids)
    assert await traffic.ids("attempts > 0") == [head]

    await full.open()
    await full.gets([filling, head])
    await inbox.gets(held)
    assert [message_id for message_id in inbox.ids if message_id in held] == held


async def test_a_timer_of_a_key_holds_back_what_follows_it(traffic: Traffic) -> None:
    inbox = await traffic.inbox("#")
    await traffic.relaying()
    due = await traffic.database.fetchval("SELECT clock_timestamp() + interval '300 ms'")
    timer = await traffic.emit("a", ordering_key="k", eta=due)
    following = await traffic.emit("a", ordering_key="k")
    await inbox.gets([timer])
    assert await traffic.database.fetchval("SELECT clock_timestamp()") >= due
    await inbox.gets([following])
    assert inbox.ids == [timer, following]


async def test_a_replaced_timer_no_longer_holds_back_what_was_emitted_after_it(traffic: Traffic) -> None:
    inbox = await traffic.inbox("#")
    await traffic.emit("a", ordering_key="k", timer_id="t", eta=timedelta(hours=1))
    due = await traffic.emit("a", ordering_key="k")
    replacement = await traffic.emit("a", ordering_key="k", timer_id="t", eta=timedelta(days=1), replace=True)
    await traffic.relaying()
    await inbox.gets([due])
    await traffic.until_ids([replacement])


async def test_an_empty_ordering_key_written_by_hand_is_a_key_like_any_other(traffic: Traffic) -> None:
    inbox = await traffic.inbox("#")
    sent = [await traffic.insert(ordering_key="''") for _ in range(5)]
    others = await traffic.emit_many(3, ordering_key="k")
    await traffic.relaying(batch_size=2)
    await inbox.gets(sent + others)
    await traffic.until_ids([])
    assert [message_id for message_id in inbox.ids if message_id in sent] == sent


async def test_every_key_gets_its_turn_where_there_are_more_keys_than_a_batch_takes(traffic: Traffic) -> None:
    inbox = await traffic.inbox("#")
    busy = await traffic.emit_all([OutboxMessage("a", n, ordering_key=f"busy-{n % 5}") for n in range(200)])
    last = await traffic.emit("a", ordering_key="z")
    await traffic.relaying(batch_size=3, lanes=1)
    await inbox.gets([*busy, last])
    # By turns it is in the second or third batch; where the first keys had precedence, it would be the last.
    assert inbox.ids.index(last) < 20
