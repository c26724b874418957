"""How long a message may wait: what is left of it goes on the wire, and what has none left does not."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from aio_pika.abc import AbstractIncomingMessage

from tests.integration.relaying import FULL, Traffic, traffic_between


@pytest.fixture
async def traffic(postgres_url: str, rabbitmq_url: str) -> AsyncIterator[Traffic]:
    async with traffic_between(postgres_url, rabbitmq_url) as traffic:
        yield traffic


def seconds_left(message: AbstractIncomingMessage) -> float:
    assert message.expiration is not None
    # aio-pika reads the property, which is in milliseconds, as seconds.
    expiration: Any = message.expiration
    return float(expiration.total_seconds() if isinstance(expiration, timedelta) else expiration)


async def test_what_is_left_of_an_expiration_becomes_the_property(traffic: Traffic) -> None:
    inbox = await traffic.inbox("#")
    await traffic.relaying()
    with_one = await inbox.get(await traffic.emit("a", expiration=500))
    without = await inbox.get(await traffic.emit("a"))
    assert 0 < seconds_left(with_one) <= 500
    assert without.expiration is None


async def test_the_time_in_the_table_counts(traffic: Traffic) -> None:
    inbox = await traffic.inbox("#")
    message_id = await traffic.insert(
        expiration="interval '500 s'",
        created_at="now() - interval '100 s'",
        send_after="now() - interval '100 s'",
    )
    await traffic.relaying()
    assert 0 < seconds_left(await inbox.get(message_id)) <= 400


async def test_an_expiration_counts_from_when_the_message_is_due(traffic: Traffic) -> None:
    inbox = await traffic.inbox("#")
    message_id = await traffic.insert(
        created_at="now() - interval '2 hours'",
        send_after="clock_timestamp() + interval '200 ms'",
        expiration="interval '500 s'",
    )
    await traffic.relaying()
    assert 0 < seconds_left(await inbox.get(message_id)) <= 500


async def test_the_relays_own_expiration_is_for_messages_without_one(traffic: Traffic) -> None:
    inbox = await traffic.inbox("#")
    await traffic.relaying(expiration=timedelta(seconds=70))
    assert seconds_left(await inbox.get(await traffic.emit("a"))) == 70
    assert 0 < seconds_left(await inbox.get(await traffic.emit("a", expiration=5))) <= 5


async def test_the_moment_at_which_it_ends_goes_along_by_the_databases_clock(traffic: Traffic) -> None:
    inbox = await traffic.inbox("#")
    row = "SELECT extract(epoch FROM send_after + expiration) FROM outbox_table WHERE message_id = $1"
    clock = "SELECT extract(epoch FROM clock_timestamp())"
    own = await traffic.emit("a", expiration=500)
    ends = await traffic.database.fetchval(row, own)
    before = await traffic.database.fetchval(clock)
    without = await traffic.emit("a")
    await traffic.relaying(expiration=timedelta(seconds=70))
    deadlines = [(await inbox.get(message_id)).headers["x-outbox-deadline"] for message_id in (own, without)]
    after = await traffic.database.fetchval(clock)
    assert all(isinstance(deadline, int) for deadline in deadlines)
    # Within a row the clock is read twice, first for what is left; between the two anything may happen.
    assert ends * 1000 - 1 <= deadlines[0] <= (ends + after - before) * 1000 + 1
    assert (before + 70) * 1000 - 1 <= deadlines[1] <= (after + 70) * 1000 + 1


async def test_an_expiration_beyond_what_the_broker_takes_is_sent_as_its_deadline_only(
    traffic: Traffic,
) -> None:
    inbox = await traffic.inbox("#")
    await traffic.relaying(expiration=timedelta(days=365))
    sent = [await traffic.emit("a"), await traffic.emit("a", expiration=timedelta(days=60))]
    year, two_months = [await inbox.get(message_id) for message_id in sent]
    assert (year.expiration, two_months.expiration) == (None, None)
    now = await traffic.database.fetchval("SELECT extract(epoch FROM clock_timestamp())::float8") * 1000
    day = 24 * 60 * 60 * 1000
    deadlines = [message.headers["x-outbox-deadline"] for message in (year, two_months)]
    assert [round((deadline - now) / day) for deadline in deadlines] == [365, 60]


EXPIRED = {"expiration": "interval '1 s'", "send_after": "now() - interval '10 s'"}


async def test_a_message_that_expired_before_it_was_sent_is_dropped_and_counted(traffic: Traffic) -> None:
    inbox = await traffic.inbox("#")
    await traffic.insert(**EXPIRED)
    await traffic.insert(**EXPIRED, ordering_key="'k'")
    alive = await traffic.emit("a")
    await traffic.relaying()
    await inbox.gets([alive])
    await traffic.until_ids([])
    assert inbox.ids == [alive]
    await traffic.until_metric(2, "outbox_messages_dropped_total", reason="expired")


async def test_a_message_that_expired_is_parked_where_asked_for(traffic: Traffic) -> None:
    inbox = await traffic.inbox("#")
    expired = await traffic.insert(**EXPIRED)
    alive = await traffic.emit("a")
    await traffic.relaying(expired="park")
    await inbox.gets([alive])
    assert await traffic.until_parked(expired) == "its expiration ended before it could be sent"
    await traffic.until_ids([expired])
    assert inbox.ids == [alive]
    await traffic.until_metric(1, "outbox_messages_parked_total", reason="expired")


async def test_an_expiration_goes_on_while_the_message_is_tried_again(traffic: Traffic) -> None:
    full = await traffic.inbox("full", arguments=FULL, is_open=False)
    first = await traffic.emit("full")
    message_id = await traffic.emit("full", expiration=5000)
    ends = "SELECT send_after + expiration FROM outbox_table WHERE message_id = $1"
    before = await traffic.database.fetchval(ends, message_id)
    relay = await traffic.relaying(backoff_initial=3600, backoff_maximum=3600)
    await traffic.until_ids([message_id], "attempts = 1")
    await relay.stop()
    # The next attempt is an hour away, and the end where it was.
    assert abs(await traffic.database.fetchval(ends, message_id) - before) < timedelta(minutes=1)

    await full.open()
    await full.gets([first])
    await traffic.database.execute("UPDATE outbox_table SET send_after = now()")
    await traffic.relaying()
    assert 0 < seconds_left(await full.get(message_id)) < 5000 - 0.7 * 3600


async def test_an_infinite_expiration_never_expires(traffic: Traffic) -> None:
    if await traffic.database.fetchval("SELECT current_setting('server_version_num')::integer") < 170000:
        pytest.skip("before Postgres 17 no interval is infinite")
    inbox = await traffic.inbox("#")
    message_id = await traffic.insert(expiration="interval 'infinity'")
    expired = await traffic.insert(expiration="interval '-infinity'")
    await traffic.relaying(expired="park")
    assert (await inbox.get(message_id)).expiration is None
    # Not by its row, whose interval asyncpg cannot read.
    await traffic.until_ids([expired], "parked_at IS NOT NULL")
