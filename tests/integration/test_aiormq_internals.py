"""Pins what `aiormq_internals` says: where aiormq changes, this fails and not a worker in production."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import aio_pika
import aiormq
import pytest
from aiormq.abc import ChannelFrame
from aiormq.exceptions import AMQPConnectionError, InvalidFrameError
from pamqp import commands
from pamqp.header import ContentHeader

from outbox_core import aiormq_internals
from outbox_core.aiormq_internals import BulkConnection
from outbox_core.aiormq_internals.bulk_connection import _Receiver
from outbox_core.inflow import METHOD

DEADLINE = 30.0
FRAME_MAX = 131_072


async def until(reached: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + DEADLINE
    while not reached():
        assert time.monotonic() < deadline, f"not within {DEADLINE:g} s: {what}"
        await asyncio.sleep(0.01)


class Sink:
    """Takes the frames that it is asked to, and remembers all."""

    def __init__(self, *, takes: bool = True) -> None:
        self.seen: list[tuple[int, bytes]] = []
        self.is_ended = False
        self.takes = takes

    def take(self, kind: int, payload: bytes) -> bool:
        self.seen.append((kind, payload))
        return self.takes

    def end(self) -> None:
        self.is_ended = True


@pytest.fixture
async def connection(rabbitmq_url: str) -> AsyncIterator[BulkConnection]:
    connection = BulkConnection(f"{rabbitmq_url}?heartbeat=1")
    await connection.connect()
    yield connection
    await connection.close()


def unroutable(own: Any) -> bytes:
    """The bytes of aiormq itself, of a message with a body of two frames that nobody wants."""
    publish = commands.Basic.Publish(exchange="amq.topic", routing_key="nobody.listens", mandatory=True)
    header = ContentHeader(properties=commands.Basic.Properties(message_id="m-1"), body_size=FRAME_MAX)
    return ChannelFrame.marshall(own.number, [publish, header, *own._split_body(bytes(FRAME_MAX))]).payload


async def test_what_we_rely_on_in_aiormq(connection: BulkConnection) -> None:
    own: Any = await connection.channel(publisher_confirms=True, frame_buffer_size=0)
    assert aiormq_internals.frame_max(own) == FRAME_MAX

    # The reader hands our frames to the sink, as they are and in their order.
    sink = Sink()
    assert aiormq_internals.attach(own, sink)
    await aiormq_internals.write(own, unroutable(own))
    await until(lambda: len(sink.seen) == 5, "a return in four frames and an ack")
    assert [kind for kind, _ in sink.seen] == [1, 2, 3, 3, 1]

    # What the sink leaves reaches aiormq's channel: the answers to its calls.
    sink.takes = False
    declared = await own.queue_declare("", exclusive=True, timeout=DEADLINE)
    assert (declared.message_count, len(sink.seen)) == (0, 6)

    # What is written at once is written between the frames of aiormq, and answered.
    sink.takes = True
    connection.write_at_once(
        ChannelFrame.marshall(own.number, [commands.Basic.Get(queue=declared.queue)]).payload
    )
    await until(lambda: len(sink.seen) == 7, "the answer to a get")
    assert sink.seen[-1][1][:4] == bytes((0, 60, 0, 72))

    # The time of a frame is that of a read, whoever takes it.
    connection._Connection__last_frame_time = 0.0  # type: ignore[attr-defined] # what is pinned
    connection.write_at_once(
        ChannelFrame.marshall(own.number, [commands.Basic.Get(queue=declared.queue)]).payload
    )
    await until(lambda: not connection.is_connection_was_stuck, "the time of the next frame")

    # Closed without waiting; the sink is told, and the number is free once the broker has answered.
    sink.takes = False
    aiormq_internals.abandon(own)
    aiormq_internals.abandon(own)
    await until(lambda: own.number not in connection.channels and own.is_closed, "the channel is closed")
    assert sink.is_ended
    assert connection.sinks == {}
    assert not connection.is_closed


async def test_a_channel_that_the_broker_closes_tells_its_sink_before_aiormq_answers(
    connection: BulkConnection,
) -> None:
    own: Any = await connection.channel(publisher_confirms=False, frame_buffer_size=0)
    sink = Sink(takes=False)
    aiormq_internals.attach(own, sink)
    assert not own._Channel__close_event.is_set()

    await own.basic_ack(999, wait=False)

    await until(lambda: sink.is_ended, "the sink is told")
    assert sink.seen[-1][0] == METHOD
    await until(lambda: own.is_closed, "the channel is closed")
    assert own._Channel__close_event.is_set()
    assert connection.sinks == {}


async def test_closing_waits_for_the_broker_and_asks_once(connection: BulkConnection) -> None:
    own: Any = await connection.channel(publisher_confirms=False, frame_buffer_size=0)
    await aiormq_internals.close_within(own, DEADLINE)
    assert own.is_closed
    await aiormq_internals.close_within(own, DEADLINE)

    # A call that timed out has asked already.
    late: Any = await connection.channel(publisher_confirms=False, frame_buffer_size=0)
    with pytest.raises(TimeoutError):
        await late.queue_declare("", exclusive=True, timeout=0.000001)
    await aiormq_internals.close_within(late, DEADLINE)
    assert late.is_closed
    other = await connection.channel(publisher_confirms=False)
    await other.queue_declare("", exclusive=True, timeout=DEADLINE)


async def test_heartbeats_pass_in_both_directions(connection: BulkConnection) -> None:
    """With a heartbeat of a second, either side would give the connection up."""
    own: Any = connection
    for _ in range(6):
        before = own._Connection__last_frame_time
        await until(lambda: own._Connection__last_frame_time > before, "a heartbeat")  # noqa: B023 - awaited
    assert connection.is_opened


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (b"", AMQPConnectionError, "Server connection unexpectedly closed"),
        (
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            InvalidFrameError,
            "a frame of .* bytes where 131072 are agreed",
        ),
        (b"\x01\x00\x01\x00\x00\x00\x01aX", InvalidFrameError, "a frame of 1 bytes does not end"),
        (b"\x01\x00\x01\x00\x00\x00\x04\x00\x63\x00\x63\xce", InvalidFrameError, "."),
    ],
)
async def test_what_is_no_frame_ends_the_connection_with_the_reason(
    connection: BulkConnection, answer: bytes, error: type[Exception], words: str
) -> None:
    stream = asyncio.StreamReader()
    stream.feed_data(answer)
    stream.feed_eof()

    with pytest.raises(error, match=words):
        await anext(_Receiver(connection, stream))


async def test_a_body_for_a_channel_without_a_sink_is_aiormqs(connection: BulkConnection) -> None:
    own: Any = await connection.channel(publisher_confirms=True, frame_buffer_size=0)
    declared = await own.queue_declare("", exclusive=True, timeout=DEADLINE)
    await own.basic_publish(b"x" * 300_000, routing_key=declared.queue, timeout=DEADLINE)
    delivered: asyncio.Queue[Any] = asyncio.Queue()
    await own.basic_consume(declared.queue, delivered.put, no_ack=True, timeout=DEADLINE)

    message = await asyncio.wait_for(delivered.get(), DEADLINE)

    assert message.body == b"x" * 300_000


# --- On a connection that is not of our own -----------------------------------------------------------------


async def test_what_we_rely_on_in_a_connection_of_aio_pikas(rabbitmq_url: str) -> None:
    async with await aio_pika.connect(rabbitmq_url) as given:
        assert given.transport is not None
        transport: Any = given.transport.connection
        assert type(transport) is aiormq.Connection
        own: Any = await transport.channel(publisher_confirms=True, frame_buffer_size=0)
        assert not aiormq_internals.attach(own, Sink())

        # Looked up on the instance, after the channel was opened, and awaited in the order of arrival.
        seen: list[tuple[object, ...]] = []
        aiormq_internals.take_over_confirms(
            own,
            lambda tag, multiple, is_ack: seen.append((tag, multiple, is_ack)),
            lambda message_id, key, returned: seen.append((message_id, key, returned.reply_text)),
        )
        await aiormq_internals.write(own, unroutable(own))
        await until(lambda: len(seen) == 2, "a return and an ack")
        assert seen == [("m-1", "nobody.listens", "NO_ROUTE"), (1, False, True)]

        aiormq_internals.abandon(own)
        await until(lambda: own.number not in transport.channels and own.is_closed, "the channel is closed")


async def test_handlers_of_an_alarm_are_looked_up_on_the_connection(connection: BulkConnection) -> None:
    """test_broker.py has a real alarm."""
    own: Any = connection
    reasons: list[str | None] = []
    aiormq_internals.watch_blocked(own, reasons.append)
    assert reasons == []
    await own._Connection__handle_connection_blocked(commands.Connection.Blocked("low on disk"))
    assert not own._Connection__connection_unblocked.is_set()
    aiormq_internals.watch_blocked(own, reasons.append)
    await own._Connection__handle_connection_unblocked(commands.Connection.Unblocked())
    assert own._Connection__connection_unblocked.is_set()
    assert reasons == ["low on disk", "before we came", None, None]
