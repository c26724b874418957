"""What `emit` takes, Postgres stores and the relay can send; the rest is refused before any SQL."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from psycopg.rows import dict_row

from outbox import OutboxMessage, SyncEmitter, schema
from outbox.testing import MemoryOutbox
from outbox_core.frames import publish_frames
from outbox_core.publisher import Message
from outbox_relay.wire import message_of
from tests.integration.conftest import OpenDoor
from tests.integration.doors import Asyncpg
from tests.integration.emitted import bodies_of
from tests.integration.relaying import traffic_between

FRAME_MAX = 131_072
"""What RabbitMQ offers by default, here as in the tests' broker."""

_texts = st.one_of(st.text(max_size=20), st.text(alphabet="aé\0\ud800", min_size=250, max_size=260))
_keys = st.one_of(_texts, st.integers(1990, 2010).map(lambda size: "k" * size))
_numbers = st.one_of(
    st.floats(),
    st.integers(),
    st.sampled_from([2**63, -(2**63), 2.0**63, -(2.0**63), 1e30, 1e300, 5e-324, 10**400, 1e16, -0.0]),
)
_header_values = st.recursive(
    st.one_of(st.none(), st.booleans(), _numbers, _texts, st.decimals(), st.datetimes(), st.uuids()),
    lambda nested: st.one_of(st.lists(nested, max_size=3), st.dictionaries(_texts, nested, max_size=3)),
    max_leaves=5,
)
_anything: dict[str, st.SearchStrategy[Any]] = {
    "routing_key": _texts,
    "body": _header_values,
    "expiration": st.one_of(st.none(), _numbers, st.timedeltas()),
    "eta": st.one_of(
        st.none(), _numbers, st.timedeltas(), st.datetimes(), st.datetimes(timezones=st.just(UTC))
    ),
    "headers": st.one_of(st.none(), st.dictionaries(_texts, _header_values, max_size=3)),
    "ordering_key": st.one_of(st.none(), _keys),
    "timer_id": st.one_of(st.none(), _keys),
    "content_type": st.one_of(st.none(), _texts),
}

_characters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
_words = st.text(_characters, min_size=1, max_size=60)
_values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(-9e18, 9e18),
        st.text(_characters),
        st.uuids(),
    ),
    lambda nested: st.one_of(st.lists(nested, max_size=3), st.dictionaries(_words, nested, max_size=3)),
    max_leaves=8,
)
_valid = st.builds(
    OutboxMessage,
    routing_key=_words,
    body=st.one_of(_values, st.binary()),
    expiration=st.one_of(
        st.none(), st.floats(0.001, 3e8), st.timedeltas(timedelta(milliseconds=1), timedelta(days=3650))
    ),
    eta=st.one_of(
        st.none(),
        st.integers(-(10**13), 10**13),
        st.timedeltas(timedelta(days=-700_000), timedelta(days=2_500_000)),
        st.datetimes(),
        st.datetimes(timezones=st.timezones()),
    ),
    headers=st.one_of(st.none(), st.dictionaries(_words, _values, max_size=3)),
    ordering_key=st.one_of(st.none(), st.text(_characters, min_size=1, max_size=500)),
    timer_id=st.one_of(st.none(), st.text(_characters, min_size=1, max_size=500)),
    content_type=st.one_of(st.none(), _words),
)


@st.composite
def _messages(draw: st.DrawFn) -> OutboxMessage:
    """A valid message, in most cases with one or two fields of any kind instead."""
    odd = draw(st.sets(st.sampled_from(sorted(_anything)), max_size=2))
    return replace(draw(_valid), **{field: draw(_anything[field]) for field in odd})


_LARGEST = OutboxMessage(
    "\N{SNOWMAN}" * 85,
    1,
    expiration=timedelta(days=3650),
    eta=datetime.max.replace(tzinfo=UTC),
    headers={"h" * 255: "x" * 114_300},
    # What pglz cannot compress, so that the index has to hold all of it.
    ordering_key="".join(chr(0x4E00 + number * 7919 % 20_000) for number in range(666)),
    timer_id="".join(chr(0x4E00 + number * 104_729 % 20_000) for number in range(666)),
    content_type="c" * 255,
)


@pytest.fixture
def connection(postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres_url, row_factory=dict_row) as connection:
        schema.create_sync(connection)
        connection.commit()
        yield connection


@settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    database=None,
)
@given(message=_messages())
@example(message=_LARGEST)
@example(message=OutboxMessage("a", 1, headers={"a": 9.2e18, "b": [-(2**63), {"": 1e-300}]}))
@example(message=OutboxMessage("a", 1, eta=timedelta(days=-700_000), expiration=0.001))
@example(message=OutboxMessage("a", 1, eta=datetime.min.replace(tzinfo=UTC)))
def test_whatever_emit_takes_is_stored_and_can_be_sent(
    connection: psycopg.Connection[Any], message: OutboxMessage
) -> None:
    try:
        SyncEmitter().bulk_emit(connection, [message])
    except (TypeError, ValueError):
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        return
    row = connection.execute(
        "SELECT message_id::text, routing_key, body, content_type, headers::text, tracking_ids::text, "
        "ordering_key, send_after, extract(epoch FROM created_at)::bigint AS timestamp, "
        "extract(epoch FROM expiration)::float8 AS remaining, "
        "extract(epoch FROM clock_timestamp())::float8 AS clock FROM outbox_table"
    ).fetchone()
    connection.rollback()
    assert row is not None
    assert 1 <= row["send_after"].year <= 9999
    wire = message_of(row, bytes(row["body"]), None)
    assert isinstance(wire, Message)
    assert publish_frames(1, "e" * 255, wire, FRAME_MAX)


@settings(deadline=None, database=None)
@given(message=_valid)
def test_a_message_within_the_limits_is_taken(message: OutboxMessage) -> None:
    with MemoryOutbox().sync_session() as session:
        assert SyncEmitter().bulk_emit(session, [message]) != [None]


async def test_the_largest_message_arrives(postgres_url: str, rabbitmq_url: str) -> None:
    async with traffic_between(postgres_url, rabbitmq_url) as traffic:
        inbox = await traffic.inbox("#")
        [sent] = await traffic.emit_all([replace(_LARGEST, eta=None)])
        await traffic.relaying()
        assert (await inbox.get(sent)).headers["h" * 255] == "x" * 114_300


@pytest.mark.parametrize(
    "fields",
    [
        {"eta": timedelta.max},
        {"expiration": 1e300},
        {"expiration": 0},
        {"timer_id": "x" * 3000},
        {"ordering_key": "x" * 3000},
        {"headers": {"a": 1e30}},
        {"headers": {"a": "x" * 200_000}},
    ],
    ids=lambda fields: str(fields)[:40],
)
async def test_what_cannot_be_sent_is_refused_and_the_transaction_goes_on(
    open_door: OpenDoor, database: asyncpg.Connection, fields: dict[str, Any]
) -> None:
    door = await open_door(Asyncpg)
    async with door.transaction():
        await door.emit("a", "before")
        with pytest.raises(ValueError, match=next(iter(fields)).rstrip("s")):
            await door.emit("a", "refused", **fields)
        with pytest.raises(ValueError, match=next(iter(fields)).rstrip("s")):
            await door.bulk_emit([OutboxMessage("a", "refused", **fields)])
        await door.emit("a", "after")
    assert await bodies_of(database) == ["before", "after"]
