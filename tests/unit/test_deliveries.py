"""Deliveries: what pamqp, which others wrote, has put into bytes is what comes out, and nothing is lost."""

import struct
from datetime import UTC, datetime
from typing import Any

import pamqp.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands
from pamqp.header import ContentHeader

from outbox_core.consumer import Received
from outbox_core.deliveries import received_of, returned_of, tag_of
from outbox_core.frames import publish_frames
from outbox_core.header_tables import DecodingError
from outbox_core.publisher import Message, RareProperties, Returned


def payload(frame: Any) -> bytes:
    """What is inside of the frame."""
    return bytes(pamqp.frame.marshal(frame, 1)[7:-1])


def deliver(**fields: Any) -> bytes:
    known: dict[str, Any] = {
        "consumer_tag": "ctag",
        "delivery_tag": 7,
        "exchange": "outbox",
        "routing_key": "user.created",
    }
    return payload(commands.Basic.Deliver(**(known | fields)))


def header(size: int = 0, **properties: Any) -> bytes:
    made = commands.Basic.Properties(**properties)
    return payload(ContentHeader(body_size=size, properties=made))


def header_of(message: Message) -> bytes:
    """As the broker hands on what we publish."""
    data = publish_frames(1, "outbox", message, 0)
    method_size = struct.unpack(">BHI", data[:7])[2] + 8
    header_size = struct.unpack(">BHI", data[method_size : method_size + 7])[2]
    return data[method_size + 7 : method_size + 7 + header_size]


def short_text(*, min_size: int = 0, longest: int = 255) -> st.SearchStrategy[str]:
    return st.text(min_size=min_size, max_size=longest).filter(lambda text: len(text.encode()) <= longest)


text = short_text(min_size=1)
headers = st.dictionaries(
    short_text(longest=128),
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text() | st.binary().map(bytearray),
    max_size=4,
)
properties = st.fixed_dictionaries(
    {},
    optional={
        "content_type": text,
        "content_encoding": text,
        "headers": headers,
        "delivery_mode": st.sampled_from([1, 2]),
        "priority": st.integers(0, 255),
        "correlation_id": text,
        "reply_to": text,
        "expiration": st.integers(0, 2**32 - 1).map(str),
        "message_id": text,
        "timestamp": st.integers(0, 2**32 - 1).map(lambda seconds: datetime.fromtimestamp(seconds, UTC)),
        "message_type": text,
        "user_id": text,
        "app_id": text,
    },
)


@given(
    properties=properties,
    method=st.fixed_dictionaries(
        {
            "consumer_tag": text,
            "delivery_tag": st.integers(1, 2**63 - 1),
            "redelivered": st.booleans(),
            "exchange": st.sampled_from(["", "outbox", "x" * 127]),
            "routing_key": short_text(),
        }
    ),
    body=st.binary(max_size=20),
)
def test_what_pamqp_writes_is_read_as_it_was(
    properties: dict[str, Any], method: dict[str, Any], body: bytes
) -> None:
    received = received_of(deliver(**method), header(len(body), **properties), body)

    assert received.tag == tag_of(deliver(**method)) == method["delivery_tag"]
    assert (received.exchange, received.redelivered) == (method["exchange"], method["redelivered"])
    assert received.message.routing_key == method["routing_key"]
    assert received.message.body == body
    assert as_pamqp_has_it(received.message) == {
        # pamqp writes neither an empty table nor a 0.
        name: value
        for name, value in properties.items()
        if value
    }


def as_pamqp_has_it(message: Message) -> dict[str, Any]:
    rare = message.rare or RareProperties()
    found = {
        "content_type": message.content_type,
        "content_encoding": rare.content_encoding,
        "headers": message.headers,
        "delivery_mode": rare.delivery_mode,
        "priority": rare.priority,
        "correlation_id": rare.correlation_id,
        "reply_to": rare.reply_to,
        "expiration": None if message.expiration_ms is None else str(message.expiration_ms),
        "message_id": message.message_id,
        "timestamp": None if message.timestamp is None else datetime.fromtimestamp(message.timestamp, UTC),
        "message_type": rare.type,
        "user_id": rare.user_id,
        "app_id": rare.app_id,
        "cluster_id": rare.cluster_id,
    }
    return {name: value for name, value in found.items() if value}


optional = st.none() | text


@given(
    st.builds(
        Message,
        routing_key=st.just("user.created"),
        body=st.just(b""),
        message_id=optional,
        timestamp=st.none() | st.integers(0, 2**64 - 1),
        content_type=optional,
        headers=headers,
        expiration_ms=st.none() | st.integers(0, 2**32 - 1),
        rare=st.none()
        | st.builds(
            RareProperties,
            content_encoding=optional,
            priority=st.none() | st.integers(0, 255),
            correlation_id=optional,
            reply_to=optional,
            type=optional,
            app_id=optional,
            cluster_id=optional,
        ),
    )
)
def test_what_we_write_is_read_as_it_was(message: Message) -> None:
    received = received_of(deliver(), header_of(message), b"")

    rare = None if message.rare == RareProperties() else message.rare
    expected = Message(
        message.routing_key,
        b"",
        message.message_id,
        message.timestamp,
        message.content_type,
        message.headers,
        message.expiration_ms,
        rare,
    )
    assert received == Received(expected, 7, "outbox", False)


def test_who_sent_it_and_how_is_read_but_not_sent_on() -> None:
    """The broker would refuse another user's name, and a message of ours is persistent."""
    theirs = RareProperties(user_id="guest", delivery_mode=1, app_id="shop")
    read = received_of(deliver(), header(user_id="guest", delivery_mode=1, app_id="shop"), b"").message
    assert read.rare == theirs

    again = received_of(deliver(), header_of(read), b"").message
    assert again.rare == RareProperties(app_id="shop")


def test_a_message_of_ours_has_nothing_rare() -> None:
    ours = Message("user.created", b"", "m", 5, "application/json", {"a": 1}, 1000)
    assert received_of(deliver(), header_of(ours), b"").message == ours


def test_texts_that_are_no_utf8_can_be_told_apart_and_written_back() -> None:
    raw = struct.pack(">HHQH", 60, 0, 0, 1 << 12 | 1 << 7) + b"\x02" + b"\x02\xff\xfe"
    method = deliver(routing_key="KEY").replace(b"\x03KEY", b"\x02\xe9\xe9")

    message = received_of(method, raw, b"").message

    assert (message.routing_key, message.message_id) == ("\udce9\udce9", "\udcff\udcfe")
    assert header_of(message) == raw


def test_an_expiration_that_is_no_number_is_none() -> None:
    assert received_of(deliver(), header(expiration="soon"), b"").message.expiration_ms is None


@given(properties=properties, routing_key=short_text())
def test_what_came_back_is_named_with_the_reason(properties: dict[str, Any], routing_key: str) -> None:
    method = payload(commands.Basic.Return(312, "NO_ROUTE", "outbox", routing_key))
    returned = returned_of(method, header(**properties))
    assert returned == (properties.get("message_id", ""), routing_key, Returned(312, "NO_ROUTE"))


@pytest.mark.parametrize("cut", [13, 14, 18, 30, 44])
def test_a_header_that_is_cut_off_is_an_error_that_says_so(cut: int) -> None:
    whole = header(
        content_type="text/plain", headers={"a": "b"}, message_id="m-1", timestamp=datetime.now(UTC)
    )
    with pytest.raises(DecodingError, match="its (properties|headers) are"):
        received_of(deliver(), whole[:cut], b"")
