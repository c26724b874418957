"""What `emit` promises, the same through every driver."""

import asyncio
import enum
import json
import uuid
import warnings
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import asyncpg
import pytest

from outbox import AutocommitWarning, Emitter, OutboxMessage, get_tracking_ids, schema, tracking
from outbox.table import TableName
from tests.integration.conftest import OpenDoor
from tests.integration.doors import DOORS, Asyncpg, AsyncSqlAlchemySession, Door, Psycopg, SqlAlchemyPsycopg2
from tests.integration.emitted import Abort, bodies_of, rows_of, until_a_statement_waits
from tests.integration.relay_process import relay_process
from tests.integration.relaying import traffic_between


class Name(str, enum.Enum):  # noqa: UP042 -- what applications have
    KEY = "remind"
    TIMER = "t-1"
    ORDER = "o-1"
    TYPE = "application/json"


async def test_commit_delivers_the_message_with_the_data(door: Door, database: asyncpg.Connection) -> None:
    async with door.transaction():
        await door.execute("INSERT INTO users VALUES (123)")
        message_id = await door.emit("user.created", {"id": 123, "username": "johndoe"})
        assert await rows_of(database) == []

    [row] = await rows_of(database)
    assert await database.fetchval("SELECT id FROM users") == 123
    assert (row["message_id"], row["routing_key"]) == (message_id, "user.created")
    assert json.loads(row["body"]) == {"id": 123, "username": "johndoe"}
    assert json.loads(row["tracking_ids"]) == [str(message_id)]
    assert (row["content_type"], row["headers"]) == ("application/json", None)
    assert row["send_after"] == row["created_at"]
    assert (row["sent_at"], row["parked_at"], row["attempts"]) == (None, None, 0)


async def test_rollback_leaves_nothing(door: Door, database: asyncpg.Connection) -> None:
    with pytest.raises(Abort):
        async with door.transaction():
            await door.execute("INSERT INTO users VALUES (1)")
            await door.emit("user.created", 1)
            await door.bulk_emit([OutboxMessage("user.created", 2), OutboxMessage("user.created", 3)])
            raise Abort
    assert await rows_of(database) == []
    assert await database.fetchval("SELECT count(*) FROM users") == 0


async def test_a_savepoint_takes_back_only_its_own_messages(door: Door, database: asyncpg.Connection) -> None:
    async with door.transaction():
        await door.emit("kept", 1)
        await door.execute("SAVEPOINT inner_work")
        await door.emit("dropped", 2)
        await door.execute("ROLLBACK TO SAVEPOINT inner_work")
        await door.emit("kept", 3)
        await door.execute("RELEASE SAVEPOINT inner_work")
    assert await bodies_of(database) == [1, 3]


async def test_every_property_of_a_message_is_kept(door: Door, database: asyncpg.Connection) -> None:
    async with door.transaction():
        await door.emit(
            "order.placed",
            b"<order/>",
            expiration=1.5,
            headers={"tenant": "ü", "retries": 3, "nested": {"ok": [True, None]}},
            ordering_key="order-1",
            timer_id="order-1-reminder",
            content_type="application/xml",
        )
    [row] = await rows_of(database)
    assert bytes(row["body"]) == b"<order/>"
    assert row["expiration"] == timedelta(seconds=1.5)
    assert json.loads(row["headers"]) == {"tenant": "ü", "retries": 3, "nested": {"ok": [True, None]}}
    assert (row["ordering_key"], row["timer_id"]) == ("order-1", "order-1-reminder")
    assert row["content_type"] == "application/xml"


async def test_bulk_keeps_the_order_and_every_property(door: Door, database: asyncpg.Connection) -> None:
    messages = [
        OutboxMessage("user.created", {"id": number, "name": 'quo"te\\ ,{}'}, headers={"n": number})
        for number in range(500)
    ]
    messages.append(OutboxMessage("raw", b"\x00\xff", expiration=9, ordering_key="k", eta=timedelta(hours=1)))
    messages.append(OutboxMessage("text", "<a/>", content_type="application/xml"))
    async with door.transaction():
        ids = await door.bulk_emit(messages)

    rows = await rows_of(database)
    assert [row["message_id"] for row in rows] == ids
    assert [json.loads(row["body"])["id"] for row in rows[:500]] == list(range(500))
    assert [json.loads(row["headers"]) for row in rows[:500]] == [{"n": number} for number in range(500)]
    raw, text = rows[500:]
    assert (bytes(raw["body"]), raw["expiration"], raw["ordering_key"]) == (
        b"\x00\xff",
        timedelta(seconds=9),
        "k",
    )
    assert raw["send_after"] - raw["created_at"] >= timedelta(hours=1)
    assert (bytes(text["body"]), text["content_type"]) == (b"<a/>", "application/xml")


async def test_bulk_with_one_bad_message_sends_nothing(door: Door, database: asyncpg.Connection) -> None:
    async with door.transaction():
        with pytest.raises(ValueError, match="message 1 of 2: routing_key must not be empty"):
            await door.bulk_emit([OutboxMessage("fine", 1), OutboxMessage("", 2)])
        assert await door.bulk_emit([]) == []
    assert await rows_of(database) == []


async def test_a_bad_message_leaves_the_transaction_usable(door: Door, database: asyncpg.Connection) -> None:
    async with door.transaction():
        with pytest.raises(TypeError, match="the body cannot be written as JSON: builtins.object"):
            await door.emit("user.created", object())
        await door.emit("user.created", "fine")
    assert await bodies_of(database) == ["fine"]


@pytest.mark.parametrize(
    ("eta", "seconds"),
    [(timedelta(minutes=5), 300), (1500, 1.5), (0.5, 0.0005), (timedelta(days=400), 34_560_000)],
    ids=str,
)
async def test_a_relative_eta_counts_from_the_servers_now(
    door: Door, database: asyncpg.Connection, eta: Any, seconds: float
) -> None:
    before = await database.fetchval("SELECT clock_timestamp()")
    async with door.transaction():
        await door.emit("reminder", 1, eta=eta)
    after = await database.fetchval("SELECT clock_timestamp()")
    [row] = await rows_of(database)
    assert before <= row["send_after"] - timedelta(seconds=seconds) <= after


async def test_an_absolute_eta_is_kept_and_a_naive_one_is_local_time(
    door: Door, database: asyncpg.Connection
) -> None:
    aware = datetime(2031, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
    naive = datetime(2031, 7, 1, 12, 0, 0)  # noqa: DTZ001 - what an application passes
    async with door.transaction():
        await door.emit("reminder", 1, eta=aware)
        await door.emit("reminder", 2, eta=naive)
    first, second = await rows_of(database)
    assert first["send_after"] == aware
    assert second["send_after"] == naive.astimezone(UTC)


async def test_a_timer_is_pending_once(door: Door, database: asyncpg.Connection) -> None:
    async with door.transaction():
        first = await door.emit("remind", 1, timer_id="t", eta=60_000)
        again = await door.emit("remind", 2, timer_id="t", eta=60_000)
        elsewhere = await door.emit("escalate", 3, timer_id="t")
    assert isinstance(first, uuid.UUID)
    assert again is None
    assert isinstance(elsewhere, uuid.UUID)
    assert await bodies_of(database) == [1, 3]


@pytest.mark.parametrize("column", ["sent_at", "parked_at"])
async def test_a_timer_that_was_sent_or_parked_can_be_set_again(
    door: Door, database: asyncpg.Connection, column: str
) -> None:
    async with door.transaction():
        await door.emit("remind", 1, timer_id="t")
    await database.execute(f"UPDATE outbox_table SET {column} = now()")
    async with door.transaction():
        assert await door.emit("remind", 2, timer_id="t") is not None
    assert await bodies_of(database) == [1, 2]


async def test_replace_moves_a_pending_timer(door: Door, database: asyncpg.Connection) -> None:
    async with door.transaction():
        await door.emit("remind", "old", timer_id="t", eta=timedelta(hours=1), expiration=5)
    await database.execute("UPDATE outbox_table SET attempts = 3, last_error = 'nacked'")
    async with door.transaction():
        moved = await door.emit("remind", "new", timer_id="t", eta=timedelta(hours=2), replace=True)
        await door.emit("remind", "first", timer_id="other", replace=True)
    row, other = await rows_of(database)
    assert (json.loads(row["body"]), row["message_id"], row["expiration"]) == ("new", moved, None)
    assert (row["attempts"], row["last_error"]) == (0, None)
    assert row["send_after"] - row["created_at"] >= timedelta(hours=2)
    assert json.loads(other["body"]) == "first"


async def test_cancel_timer_tells_whether_it_removed_one(door: Door, database: asyncpg.Connection) -> None:
    async with door.transaction():
        await door.emit("remind", 1, timer_id="t", eta=60_000)
        await door.emit("remind", 2, timer_id="other", eta=60_000)
    async with door.transaction():
        assert await door.cancel_timer("remind", "t") is True
        assert await door.cancel_timer("remind", "t") is False
        assert await door.cancel_timer("elsewhere", "other") is False
    assert await bodies_of(database) == [2]
    with pytest.raises(Abort):
        async with door.transaction():
            assert await door.cancel_timer("remind", "other") is True
            raise Abort
    assert await bodies_of(database) == [2]


async def test_an_enum_member_that_is_a_str_means_its_value(door: Door, database: asyncpg.Connection) -> None:
    async with door.transaction():
        await door.emit(Name.KEY, 1, timer_id=Name.TIMER, ordering_key=Name.ORDER, content_type=Name.TYPE)
        assert await door.emit("remind", 2, timer_id="t-1") is None
        assert await door.bulk_emit([OutboxMessage(Name.KEY, 3, timer_id=Name.TIMER)]) == [None]
    [row] = await rows_of(database)
    columns = ("routing_key", "timer_id", "ordering_key", "content_type")
    assert [row[column] for column in columns] == ["remind", "t-1", "o-1", "application/json"]
    async with door.transaction():
        assert await door.cancel_timer(Name.KEY, Name.TIMER) is True
    assert await rows_of(database) == []


async def test_cancel_timer_removes_a_timer_whose_relay_died_before_its_commit(
    open_door: OpenDoor, database: asyncpg.Connection, postgres_url: str
) -> None:
    # Whether the broker has the message is not known to the table: the row is as it was before the claim.
    door = await open_door(Asyncpg)
    async with door.transaction():
        await door.emit("remind", 1, timer_id="t")
    relay = await asyncpg.connect(postgres_url)
    await relay.execute("BEGIN")
    await relay.execute("SELECT FROM outbox_table FOR UPDATE SKIP LOCKED")
    async with door.transaction():
        cancelling = asyncio.create_task(door.cancel_timer("remind", "t"))
        await until_a_statement_waits(database)
        relay.terminate()
        assert await cancelling is True


async def test_cancel_timer_is_true_for_a_timer_published_by_a_relay_that_died(
    postgres_url: str, rabbitmq_url: str
) -> None:
    async with traffic_between(postgres_url, rabbitmq_url) as traffic:
        inbox = await traffic.inbox("#")
        # A lock of the test holds the relay between the broker's confirm and its commit.
        await traffic.database.execute(
            """
            CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql
                AS 'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN OLD; END';
            CREATE TRIGGER wait BEFORE DELETE ON outbox_table FOR EACH ROW EXECUTE FUNCTION wait();
            SELECT pg_advisory_lock(1);
            """
        )
        async with relay_process(
            OUTBOX_DATABASE_URL=postgres_url,
            OUTBOX_BROKER_URL=rabbitmq_url,
            OUTBOX_EXCHANGE_NAME=traffic.exchange_name,
        ) as process:
            timer = await traffic.emit("remind", 1, timer_id="t")
            await inbox.get(timer)
            await until_a_statement_waits(traffic.database)
            process.process.kill()
            await process.ended()
        await traffic.database.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
            "WHERE application_name LIKE 'outbox-relay%' AND datname = current_database()"
        )
        async with traffic.database.transaction():
            assert await Emitter().cancel_timer(traffic.database, "remind", "t") is True
        assert await traffic.ids() == []
    assert inbox.ids == [timer]


async def test_bulk_skips_pending_timers_and_says_which(door: Door, database: asyncpg.Connection) -> None:
    async with door.transaction():
        await door.emit("remind", "old", timer_id="a")
        ids = await door.bulk_emit(
            [
                OutboxMessage("remind", "pending", timer_id="a"),
                OutboxMessage("remind", "new", timer_id="b"),
                OutboxMessage("remind", "twice", timer_id="b"),
                OutboxMessage("plain", "no timer"),
            ]
        )
    assert [message_id is not None for message_id in ids] == [False, True, False, True]
    assert await bodies_of(database) == ["old", "new", "no timer"]


@pytest.mark.parametrize("first_commits", [True, False], ids=["first commits", "first rolls back"])
async def test_one_timer_from_two_transactions_is_pending_once(
    kind: type[Door], open_door: OpenDoor, database: asyncpg.Connection, first_commits: bool
) -> None:
    first, second = await open_door(kind), await open_door(kind)
    await first.begin()
    await second.begin()
    assert await first.emit("remind", "first", timer_id="t") is not None
    waiting = asyncio.create_task(second.emit("remind", "second", timer_id="t"))
    await until_a_statement_waits(database)
    await (first.commit() if first_commits else first.rollback())
    second_id = await waiting
    await second.commit()
    assert (second_id is None) is first_commits
    assert await bodies_of(database) == ["first" if first_commits else "second"]


@pytest.mark.parametrize("settle", ["DELETE FROM outbox_table", "UPDATE outbox_table SET sent_at = now()"])
async def test_a_timer_set_again_while_it_is_being_sent_is_not_swallowed(
    door: Door, database: asyncpg.Connection, settle: str
) -> None:
    async with door.transaction():
        await door.emit("remind", "first", timer_id="t")
    relay = database.transaction()
    await relay.start()
    await database.execute("SELECT FROM outbox_table FOR UPDATE SKIP LOCKED")
    await door.begin()
    again = asyncio.create_task(door.emit("remind", "second", timer_id="t"))
    await until_a_statement_waits(database)
    await database.execute(settle)
    await relay.commit()
    assert await again is not None
    await door.commit()
    assert (await bodies_of(database))[-1] == "second"


async def test_many_first_emits_at_once_create_the_table_once(kind: type[Door], open_door: OpenDoor) -> None:
    doors = [await open_door(kind, auto_create_table=True, table_name="fresh") for _ in range(8)]

    async def emit_in_a_transaction(door: Door, number: int) -> None:
        async with door.transaction():
            await door.emit("first", number)

    await asyncio.gather(*(emit_in_a_transaction(door, number) for number, door in enumerate(doors)))
    connection = await asyncpg.connect(doors[0].url)
    bodies = {json.loads(row["body"]) for row in await rows_of(connection, "fresh")}
    problems = await schema.check(connection, table_name="fresh")
    await connection.close()
    assert bodies == set(range(8))
    assert problems == []


async def test_a_table_whose_creation_was_rolled_back_is_created_again(
    kind: type[Door], open_door: OpenDoor, postgres_url: str
) -> None:
    door = await open_door(kind, auto_create_table=True)
    with pytest.raises(Abort):
        async with door.transaction():
            await door.emit("first", 1)
            await door.emit("first", 2)
            raise Abort
    async with door.transaction():
        await door.emit("second", 3)
    async with door.transaction():
        await door.emit("third", 4)
    connection = await asyncpg.connect(postgres_url)
    assert await bodies_of(connection) == [3, 4]
    await connection.close()


@pytest.mark.parametrize(
    "body",
    [
        b"\x00",
        b"\x00\x01\xfe\xff",
        b"",
        "ä€🐇\u2028",
        "",
        0,
        None,
        [],
        {"π": [1.5, "🦊" * 1000]},
        "a" * 1_000_000,
    ],
    ids=lambda body: repr(body)[:20],
)
async def test_bodies_arrive_as_they_were(door: Door, database: asyncpg.Connection, body: Any) -> None:
    async with door.transaction():
        await door.emit("body", body)
        await door.bulk_emit([OutboxMessage("body", body)])
    for row in await rows_of(database):
        kept = bytes(row["body"])
        assert (kept if isinstance(body, bytes) else json.loads(kept)) == body


async def test_a_body_of_16_mib_fits_and_one_byte_more_is_refused(
    door: Door, database: asyncpg.Connection
) -> None:
    largest = bytes(16 * 1024 * 1024)
    async with door.transaction():
        await door.emit("body", largest)
        with pytest.raises(
            ValueError, match=r"body has 16777217 bytes, more than max_body_size \(16777216\)"
        ):
            await door.emit("body", largest + b"x")
    [size] = [row["size"] for row in await database.fetch("SELECT length(body) AS size FROM outbox_table")]
    assert size == len(largest)


async def test_values_beyond_json_are_written_as_text(door: Door, database: asyncpg.Connection) -> None:
    identifier = uuid.UUID(int=7)
    async with door.transaction():
        await door.emit(
            "body", {"id": identifier, "price": Decimal("1.10"), "at": datetime(2030, 1, 1, tzinfo=UTC)}
        )
    [body] = await bodies_of(database)
    assert body == {"id": str(identifier), "price": "1.10", "at": "2030-01-01T00:00:00+00:00"}


async def test_tracking_ids_follow_the_context(door: Door, database: asyncpg.Connection) -> None:
    with tracking() as [entrypoint]:
        assert get_tracking_ids() == [entrypoint]
        async with door.transaction():
            first = await door.emit("a", 1)
            [second] = await door.bulk_emit([OutboxMessage("b", 2)])
    rows = await rows_of(database)
    assert [json.loads(row["tracking_ids"]) for row in rows] == [
        [entrypoint, str(first)],
        [entrypoint, str(second)],
    ]


async def test_a_default_expiration_is_for_messages_without_their_own(
    kind: type[Door], open_door: OpenDoor, database: asyncpg.Connection
) -> None:
    door = await open_door(kind, expiration=timedelta(minutes=1))
    async with door.transaction():
        await door.emit("a", 1)
        await door.emit("a", 2, expiration=5)
    assert [row["expiration"].total_seconds() for row in await rows_of(database)] == [60, 5]


@pytest.mark.parametrize(
    "table",
    [
        'Shop."Out.Box"',
        'quo"te',
        "per%cent %s",
        "dollar$1",
        'x"; DROP TABLE users; --',
        "outbox tafel",
        "tаблица",
    ],
)
async def test_table_names_are_taken_literally(
    kind: type[Door], open_door: OpenDoor, database: asyncpg.Connection, table: str
) -> None:
    await database.execute('CREATE SCHEMA "Shop"')
    door = await open_door(kind, table_name=table, auto_create_table=True)
    async with door.transaction():
        await door.emit("a", 1)
        await door.emit("a", 2, timer_id="t")
        await door.emit("a", 3, timer_id="t", replace=True)
        await door.bulk_emit([OutboxMessage("a", 4), OutboxMessage("a", 5, timer_id="t")])
        assert await door.cancel_timer("a", "t") is True
    name = TableName.parse(table).sql
    assert [json.loads(row["body"]) for row in await rows_of(database, name)] == [1, 4]
    assert await schema.check(database, table_name=table) == []
    assert await database.fetchval("SELECT count(*) FROM users") == 0


class TestOutsideOfATransaction:
    async def test_asyncpg_warns_once(self, open_door: OpenDoor, database: asyncpg.Connection) -> None:
        door = await open_door(Asyncpg)
        await self._warns_once(door)
        assert not door.session.is_in_transaction()
        assert await bodies_of(database) == [1, 2]

    async def test_psycopg_warns_once(self, open_door: OpenDoor, database: asyncpg.Connection) -> None:
        door = await open_door(Psycopg)
        door.session.autocommit = True
        await self._warns_once(door)

    async def test_sqlalchemy_warns_once(self, open_door: OpenDoor, database: asyncpg.Connection) -> None:
        door = await open_door(SqlAlchemyPsycopg2)
        door.session.connection(execution_options={"isolation_level": "AUTOCOMMIT"})
        await self._warns_once(door)

    async def test_sqlalchemy_async_warns_once(
        self, open_door: OpenDoor, database: asyncpg.Connection
    ) -> None:
        door = await open_door(AsyncSqlAlchemySession)
        await door.session.connection(execution_options={"isolation_level": "AUTOCOMMIT"})
        await self._warns_once(door)

    @pytest.mark.parametrize(
        "kind", [kind for kind in DOORS if "jango" in kind.label], ids=lambda kind: kind.label
    )
    async def test_django_warns_once(
        self, kind: type[Door], open_door: OpenDoor, database: asyncpg.Connection
    ) -> None:
        await self._warns_once(await open_door(kind))

    async def _warns_once(self, door: Door) -> None:
        with pytest.warns(AutocommitWarning, match='emitting into "outbox_table" outside of a transaction'):
            await door.emit("a", 1)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            await door.emit("a", 2)

    async def test_psycopg_autocommit_inside_a_transaction_block_does_not_warn(
        self, open_door: OpenDoor, database: asyncpg.Connection
    ) -> None:
        door = await open_door(Psycopg)
        door.session.autocommit = True
        await door.execute("BEGIN")
        await door.emit("a", 1)
        assert await rows_of(database) == []
        await door.execute("COMMIT")
        assert await bodies_of(database) == [1]
