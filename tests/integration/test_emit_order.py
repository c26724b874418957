"""The order in which rows of one key, or one timer, get their ids, through every driver."""

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from outbox import Emitter, OutboxMessage
from tests.integration.conftest import OpenDoor
from tests.integration.doors import Asyncpg, Door
from tests.integration.emitted import bodies_of, rows_of, until_a_statement_waits
from tests.integration.relaying import traffic_between


async def test_a_replaced_timer_leaves_after_what_was_emitted_before_it(
    door: Door, database: asyncpg.Connection
) -> None:
    async with door.transaction():
        await door.emit("step", "A", ordering_key="k", timer_id="t")
    async with door.transaction():
        await door.emit("step", "B", ordering_key="k")
        await door.emit(
            "step", "A again", ordering_key="k", timer_id="t", eta=timedelta(days=1), replace=True
        )
    assert await bodies_of(database) == ["B", "A again"]


async def test_a_replaced_timer_gets_a_new_id_from_a_serial_column(
    open_door: OpenDoor, database: asyncpg.Connection
) -> None:
    await database.execute(
        "ALTER TABLE outbox_table ALTER id DROP IDENTITY; CREATE SEQUENCE ids OWNED BY outbox_table.id; "
        "ALTER TABLE outbox_table ALTER id SET DEFAULT nextval('ids')"
    )
    door = await open_door(Asyncpg)
    async with door.transaction():
        await door.emit("step", "A", timer_id="t")
        await door.emit("step", "B")
        await door.emit("step", "A again", timer_id="t", replace=True)
    assert await bodies_of(database) == ["B", "A again"]


@pytest.mark.parametrize("way", ["replaced", "cancelled"])
async def test_what_waited_behind_a_timer_of_its_key_is_sent(
    postgres_url: str, rabbitmq_url: str, way: str
) -> None:
    timer: dict[str, Any] = {"ordering_key": "k", "timer_id": "t", "eta": timedelta(days=1)}
    async with traffic_between(postgres_url, rabbitmq_url) as traffic:
        inbox = await traffic.inbox("#")
        await traffic.relaying(notification_timeout=1)
        await traffic.emit("step", "A", **timer)
        behind = await traffic.emit("step", "B", ordering_key="k")
        first = await traffic.emit("step", "of no key")
        await inbox.gets([first])
        assert inbox.ids == [first]
        if way == "replaced":
            await traffic.emit("step", "A again", **timer, replace=True)
        else:
            assert await Emitter().cancel_timer(traffic.database, "step", "t")
        await inbox.gets([behind])


@pytest.mark.parametrize("settle", ["DELETE FROM outbox_table", "UPDATE outbox_table SET sent_at = now()"])
async def test_a_timer_replaced_while_it_is_being_sent_is_emitted_anew(
    door: Door, database: asyncpg.Connection, settle: str
) -> None:
    async with door.transaction():
        await door.emit("remind", "first", timer_id="t")
    relay = database.transaction()
    await relay.start()
    await database.execute("SELECT FROM outbox_table FOR UPDATE SKIP LOCKED")
    await door.begin()
    again = asyncio.create_task(door.emit("remind", "second", timer_id="t", replace=True))
    await until_a_statement_waits(database)
    await database.execute(settle)
    await relay.commit()
    message_id = await again
    await door.commit()
    last = (await rows_of(database))[-1]
    assert (json.loads(last["body"]), last["message_id"], last["sent_at"]) == ("second", message_id, None)


async def test_a_timer_whose_sending_failed_is_replaced(
    open_door: OpenDoor, database: asyncpg.Connection
) -> None:
    door = await open_door(Asyncpg)
    async with door.transaction():
        await door.emit("remind", "first", timer_id="t")
    relay = database.transaction()
    await relay.start()
    await database.execute("SELECT FROM outbox_table FOR UPDATE SKIP LOCKED")
    await door.begin()
    again = asyncio.create_task(door.emit("remind", "second", timer_id="t", replace=True))
    await until_a_statement_waits(database)
    await database.execute("UPDATE outbox_table SET attempts = attempts + 1, last_error = 'nacked'")
    await relay.commit()
    message_id = await again
    await door.commit()
    [row] = await rows_of(database)
    assert (row["message_id"], row["attempts"], row["last_error"]) == (message_id, 0, None)


@pytest.mark.parametrize("bulk", [False, True], ids=["emit", "bulk_emit"])
async def test_locked_ordering_keys_get_their_ids_in_commit_order(
    kind: type[Door], open_door: OpenDoor, database: asyncpg.Connection, bulk: bool
) -> None:
    first = await open_door(kind, lock_ordering_keys=True)
    second = await open_door(kind, lock_ordering_keys=True)
    await first.begin()
    await second.begin()
    await _emit_keyed(first, "first", bulk)
    waiting = asyncio.create_task(_emit_keyed(second, "second", bulk))
    await until_a_statement_waits(database)
    await _emit_keyed(first, "first again", bulk)
    await first.commit()
    await waiting
    await second.commit()
    assert await bodies_of(database) == ["first", "first again", "second"]


async def test_without_the_lock_ids_can_differ_from_commit_order(
    open_door: OpenDoor, database: asyncpg.Connection
) -> None:
    first, second = await open_door(Asyncpg), await open_door(Asyncpg)
    await first.begin()
    await second.begin()
    await _emit_keyed(first, "committed last", False)
    await _emit_keyed(second, "committed first", False)
    await second.commit()
    await first.commit()
    assert await bodies_of(database) == ["committed last", "committed first"]


async def test_the_lock_is_of_one_key_of_one_table(open_door: OpenDoor, database: asyncpg.Connection) -> None:
    first = await open_door(Asyncpg, lock_ordering_keys=True)
    second = await open_door(Asyncpg, lock_ordering_keys=True)
    elsewhere = await open_door(
        Asyncpg, lock_ordering_keys=True, table_name="another_table", auto_create_table=True
    )
    await first.begin()
    await first.emit("step", 1, ordering_key="k")
    async with second.transaction():
        await second.emit("step", 2, ordering_key="other")
        await second.emit("step", 3)
        await second.bulk_emit([OutboxMessage("step", 4), OutboxMessage("step", 5, ordering_key="third")])
    async with elsewhere.transaction():
        await elsewhere.emit("step", 6, ordering_key="k")
    await first.commit()
    assert await bodies_of(database) == [1, 2, 3, 4, 5]


async def test_bulks_lock_their_keys_in_one_order(open_door: OpenDoor, database: asyncpg.Connection) -> None:
    keys = [f"key-{number}" for number in range(50)]
    first = await open_door(Asyncpg, lock_ordering_keys=True)
    second = await open_door(Asyncpg, lock_ordering_keys=True)

    async def bulks(door: Door, given: list[str]) -> None:
        for _ in range(10):
            async with door.transaction():
                await door.bulk_emit([OutboxMessage("step", 1, ordering_key=key) for key in given])

    await asyncio.gather(bulks(first, keys), bulks(second, keys[::-1]))
    assert len(await rows_of(database)) == 1000


@pytest.mark.parametrize(
    "key_of",
    [lambda _: None, lambda name: name, lambda _: "one"],
    ids=["no key", "a key each", "one key"],
)
async def test_bulks_of_the_same_timers_in_opposite_order_do_not_deadlock(
    open_door: OpenDoor, database: asyncpg.Connection, key_of: Callable[[str], str | None]
) -> None:
    # A third transaction holds a timer from the middle, so that both bulks are under way when it ends.
    names = [f"timer-{number:02}" for number in range(21)]
    holder, first, second = await open_door(Asyncpg), await open_door(Asyncpg), await open_door(Asyncpg)
    await holder.begin()
    await holder.emit("remind", 0, timer_id=names[10])

    async def bulk(door: Door, given: list[str]) -> list[Any]:
        async with door.transaction():
            ids: list[Any] = await door.bulk_emit(
                [OutboxMessage("remind", 1, timer_id=name, ordering_key=key_of(name)) for name in given]
            )
        return ids

    tasks = [asyncio.create_task(bulk(first, names)), asyncio.create_task(bulk(second, names[::-1]))]
    await until_a_statement_waits(database, 2)
    await holder.rollback()
    one, other = await asyncio.gather(*tasks)
    inserted = [message_id for message_id in (*one, *other) if message_id is not None]
    assert len(inserted) == len(names)
    assert {row["message_id"] for row in await rows_of(database)} == set(inserted)


async def test_a_bulk_with_timers_keeps_the_order_of_each_key(
    door: Door, database: asyncpg.Connection
) -> None:
    messages = [
        OutboxMessage("step", "z", timer_id="z"),
        OutboxMessage("step", "k1", ordering_key="k"),
        OutboxMessage("step", "k2", ordering_key="k", timer_id="y"),
        OutboxMessage("step", "a", timer_id="a"),
        OutboxMessage("step", "k3", ordering_key="k", timer_id="b"),
        OutboxMessage("step", "plain"),
        OutboxMessage("step", "k4", ordering_key="k"),
    ]
    async with door.transaction():
        ids = await door.bulk_emit(messages)
    rows = await rows_of(database)
    bodies = [json.loads(row["body"]) for row in rows]
    assert [body for body in bodies if body.startswith("k")] == ["k1", "k2", "k3", "k4"]
    assert {str(row["message_id"]): json.loads(row["body"]) for row in rows} == {
        str(message_id): message.body for message_id, message in zip(ids, messages, strict=True)
    }


async def _emit_keyed(door: Door, body: str, bulk: bool) -> None:
    if bulk:
        await door.bulk_emit([OutboxMessage("step", body, ordering_key="k")])
    else:
        await door.emit("step", body, ordering_key="k")
