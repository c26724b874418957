"""AMQP frames: what is put in comes out again when pamqp, which others wrote, decodes the bytes."""

import struct
from datetime import UTC, datetime
from typing import Any

import pamqp.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands
from pamqp.body import ContentBody
from pamqp.header import ContentHeader

from outbox_core.frames import LONGEST_EXPIRATION_MS, ack_frame, nack_frame, publish_frames
from outbox_core.header_tables import EncodingError
from outbox_core.publisher import Message, RareProperties

FRAME_MAX = 131_072


def message(**fields: Any) -> Message:
    properties: dict[str, Any] = {"routing_key": "user.created", "body": b"{}", "message_id": "m-1"}
    return Message(**({"timestamp": 0} | properties | fields))


def decoded(data: bytes, channel_number: int = 1) -> list[Any]:
    """The frames in `data`, all of it, all on the channel."""
    frames = []
    while data:
        size, channel, frame = pamqp.frame.unmarshal(data)
        assert channel == channel_number
        frames.append(frame)
        data = data[size:]
    return frames


def short_text(*, min_size: int = 0) -> st.SearchStrategy[str]:
    return st.text(min_size=min_size, max_size=255).filter(lambda text: len(text.encode()) <= 255)


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(short_text(), inner, max_size=4),
    max_leaves=8,
)


@given(
    sent=st.builds(
        Message,
        routing_key=short_text(),
        body=st.binary(max_size=2000),
        message_id=st.none() | short_text(min_size=1),
        timestamp=st.none() | st.integers(0, 2**32 - 1),  # pamqp takes more for milliseconds
        content_type=st.none() | short_text(min_size=1),
        headers=st.dictionaries(short_text(), values, max_size=5),
        expiration_ms=st.none() | st.integers(0, LONGEST_EXPIRATION_MS),
        rare=st.none()
        | st.builds(
            RareProperties,
            content_encoding=st.none() | short_text(min_size=1),
            priority=st.none() | st.integers(0, 255),
            correlation_id=st.none() | short_text(min_size=1),
            reply_to=st.none() | short_text(min_size=1),
            type=st.none() | short_text(min_size=1),
            app_id=st.none() | short_text(min_size=1),
            cluster_id=st.none() | short_text(min_size=1),
            user_id=st.none() | short_text(min_size=1),
            delivery_mode=st.sampled_from([None, 1, 2]),
        ),
    ),
    channel_number=st.integers(1, 65_535),
    frame_max=st.sampled_from([0, 4096, FRAME_MAX]),
)
def test_what_pamqp_decodes_is_what_was_put_in(sent: Message, channel_number: int, frame_max: int) -> None:
    try:
        data = publish_frames(channel_number, "outbox", sent, frame_max)
    except EncodingError as error:
        assert "the headers take" in str(error)  # noqa: PT017 - only with large headers and small frames
        return

    publish, header, *bodies = decoded(data, channel_number)

    assert isinstance(publish, commands.Basic.Publish)
    assert (publish.exchange, publish.routing_key) == ("outbox", sent.routing_key)
    assert (publish.mandatory, publish.immediate) == (True, False)
    assert isinstance(header, ContentHeader)
    assert header.body_size == len(sent.body)
    # pamqp has "" for a cluster id that is not there.
    assert {name: value for name, value in header.properties if value not in (None, "")} == expected(sent)
    assert all(isinstance(body, ContentBody) for body in bodies)
    assert b"".join(body.value for body in bodies) == sent.body


def expected(sent: Message) -> dict[str, object]:
    """Who sent it and how is never sent on."""
    rare = sent.rare or RareProperties()
    properties: dict[str, object] = {
        "content_type": sent.content_type,
        "content_encoding": rare.content_encoding,
        "headers": sent.headers or None,
        "delivery_mode": 2,
        "priority": rare.priority,
        "correlation_id": rare.correlation_id,
        "reply_to": rare.reply_to,
        "expiration": None if sent.expiration_ms is None else str(sent.expiration_ms),
        "message_id": sent.message_id,
        "timestamp": None if sent.timestamp is None else datetime.fromtimestamp(sent.timestamp, UTC),
        "message_type": rare.type,
        "app_id": rare.app_id,
        "cluster_id": rare.cluster_id,
    }
    return {name: value for name, value in properties.items() if value is not None}


@given(size=st.integers(0, 3 * 92), frame_max=st.sampled_from([100, 101, 150]))
def test_a_body_is_split_so_that_no_frame_is_larger_than_agreed(size: int, frame_max: int) -> None:
    body = bytes(index % 251 for index in range(size))

    _, _, *bodies = decoded(publish_frames(1, "outbox", message(body=body), frame_max))

    assert [len(part.value) for part in bodies[:-1]] == [frame_max - 8] * (len(bodies) - 1)
    assert b"".join(part.value for part in bodies) == body
    assert all(part.value for part in bodies)


def test_an_empty_body_has_no_frame() -> None:
    assert len(decoded(publish_frames(1, "outbox", message(body=b""), FRAME_MAX))) == 2


def test_a_routing_key_has_at_most_255_bytes() -> None:
    publish, *_ = decoded(publish_frames(1, "outbox", message(routing_key="ü" * 127 + "k"), FRAME_MAX))
    assert publish.routing_key == "ü" * 127 + "k"

    with pytest.raises(EncodingError, match="the routing key is 256 bytes long and AMQP takes 255"):
        publish_frames(1, "outbox", message(routing_key="ü" * 128), FRAME_MAX)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"message_id": "m" * 256}, "the message id is 256 bytes long"),
        ({"content_type": "t" * 256}, "the content type is 256 bytes long"),
        ({"routing_key": "\udfff"}, "the routing key .* is not text"),
        ({"expiration_ms": -1}, "the expiration of -1 ms is not between 0 and 4294967295"),
        ({"expiration_ms": 2**32}, "the expiration of 4294967296 ms"),
        ({"timestamp": -1}, "the timestamp -1 is not"),
        ({"rare": RareProperties(priority=256)}, "the priority 256 is not between 0 and 255"),
        ({"rare": RareProperties(reply_to="r" * 256)}, "the reply address is 256 bytes long"),
        ({"headers": {"large": "x" * FRAME_MAX}}, "the headers take .* move some of them into the body"),
        ({"body": b"x" * 11}, "the body is 11 bytes long and the broker takes 10"),
    ],
)
def test_a_message_that_cannot_be_sent_says_what_is_wrong(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(EncodingError, match=complaint):
        publish_frames(1, "outbox", message(**fields), FRAME_MAX, 10)


def test_headers_may_fill_a_frame() -> None:
    empty = publish_frames(1, "outbox", message(body=b"", headers={"x": ""}), 0)
    header_frame = empty[struct.unpack(">BHI", empty[:7])[2] + 8 :]
    text = "x" * (4096 - len(header_frame))

    publish_frames(1, "outbox", message(headers={"x": text}), 4096)
    with pytest.raises(EncodingError, match="the headers take 4089 bytes and the broker takes 4088"):
        publish_frames(1, "outbox", message(headers={"x": text + "x"}), 4096)


@pytest.mark.parametrize("multiple", [False, True])
def test_an_ack_is_what_pamqp_makes_of_it(multiple: bool) -> None:
    frame = commands.Basic.Ack(delivery_tag=2**40, multiple=multiple)
    assert ack_frame(7, 2**40, multiple=multiple) == pamqp.frame.marshal(frame, 7)


@pytest.mark.parametrize("requeue", [False, True])
def test_a_nack_is_what_pamqp_makes_of_it(requeue: bool) -> None:
    frame = commands.Basic.Nack(delivery_tag=2**40, multiple=False, requeue=requeue)
    assert nack_frame(7, 2**40, requeue=requeue) == pamqp.frame.marshal(frame, 7)
