"""AMQP 0-9-1 frames that we send, as bytes: published messages and answers to deliveries.

Pure. Written by hand because every message passes through here, and pamqp's `marshal` takes several times as
long. What repeats between messages is kept: the method frame of a routing key, content types, header names.
"""

import struct
from functools import lru_cache

from outbox_core.header_tables import EncodingError, encode_short, encode_table
from outbox_core.publisher import Message, RareProperties

LONGEST_EXPIRATION_MS = 2**32 - 1
"""RabbitMQ closes the channel over a longer one, and with it everything else that is under way."""

_METHOD, _HEADER, _BODY = 1, 2, 3
_BASIC, _PUBLISH, _ACK, _NACK = 60, 40, 80, 120
_ANSWER_SIZE = 13
_MULTIPLE, _REQUEUE = 1, 2
_MANDATORY = b"\x01"
_PERSISTENT = b"\x02"
_END_OCTET = 0xCE
_END = bytes((_END_OCTET,))
_FRAME_OVERHEAD = 8

_CONTENT_TYPE_FLAG, _HEADERS_FLAG, _EXPIRATION_FLAG = 1 << 15, 1 << 13, 1 << 8
_ALWAYS_FLAGS = 1 << 12 | 1 << 7 | 1 << 6  # delivery mode, message id, timestamp

_FRAME_START = struct.Struct(">BHI")
_HEADER_START = struct.Struct(">BHIHHQH")
_HEADER_FIXED_SIZE = _HEADER_START.size - _FRAME_START.size
_LONG_LONG = struct.Struct(">Q")
_OCTET = struct.Struct(">B")
_ANSWER = struct.Struct(">BHIHHQBB")
_NOTHING_RARE = RareProperties()


def publish_frames(
    channel_number: int,
    exchange: str,
    message: Message,
    frame_max: int,
    max_message_size: int | None = None,
) -> bytes:
    """`basic.publish` (mandatory), the content header, and the body in frames of at most `frame_max` bytes.

    A `frame_max` of 0 is no limit. An `EncodingError` says what the broker would not take.
    """
    body = message.body
    size = len(body)
    if max_message_size is not None and size > max_message_size:
        raise EncodingError(f"the body is {size} bytes long and the broker takes {max_message_size}")
    flags, properties = _properties(message)
    header_size = _HEADER_FIXED_SIZE + len(properties)
    if 0 < frame_max < header_size + _FRAME_OVERHEAD:
        raise EncodingError(
            f"the headers take {header_size} bytes and the broker takes {frame_max - _FRAME_OVERHEAD}; "
            "move some of them into the body"
        )
    parts = [
        _publish_frame(channel_number, exchange, message.routing_key),
        _HEADER_START.pack(_HEADER, channel_number, header_size, _BASIC, 0, size, flags),
        properties,
        _END,
    ]
    if not size:
        return b"".join(parts)
    if not frame_max or size <= frame_max - _FRAME_OVERHEAD:
        parts += (_FRAME_START.pack(_BODY, channel_number, size), body, _END)
    else:
        _append_chunks(parts, channel_number, body, frame_max - _FRAME_OVERHEAD)
    return b"".join(parts)


def ack_frame(channel_number: int, tag: int, *, multiple: bool) -> bytes:
    """`basic.ack` of one delivery, or of all up to this one."""
    return _ANSWER.pack(
        _METHOD, channel_number, _ANSWER_SIZE, _BASIC, _ACK, tag, _MULTIPLE if multiple else 0, _END_OCTET
    )


def nack_frame(channel_number: int, tag: int, *, requeue: bool) -> bytes:
    """`basic.nack` of one delivery, which goes back to its queue or on to the dead letters."""
    return _ANSWER.pack(
        _METHOD, channel_number, _ANSWER_SIZE, _BASIC, _NACK, tag, _REQUEUE if requeue else 0, _END_OCTET
    )


def _append_chunks(parts: list[bytes], channel_number: int, body: bytes, longest: int) -> None:
    for start in range(0, len(body), longest):
        chunk = body[start : start + longest]
        parts += (_FRAME_START.pack(_BODY, channel_number, len(chunk)), chunk, _END)


@lru_cache(maxsize=4096)
def _publish_frame(channel_number: int, exchange: str, routing_key: str) -> bytes:
    arguments = encode_short("the exchange", exchange) + encode_short("the routing key", routing_key)
    payload = struct.pack(">HHH", _BASIC, _PUBLISH, 0) + arguments + _MANDATORY
    return _FRAME_START.pack(_METHOD, channel_number, len(payload)) + payload + _END


def _properties(message: Message) -> tuple[int, bytes]:
    """The property flags and the list of those that are set, in the order of the flags."""
    message_id, timestamp = message.message_id, message.timestamp
    if message_id is None or timestamp is None or message.rare is not None:
        return _foreign_properties(message)
    flags = _ALWAYS_FLAGS
    content_type = headers = expiration = b""
    if message.content_type is not None:
        flags |= _CONTENT_TYPE_FLAG
        content_type = _content_type(message.content_type)
    if message.headers:
        flags |= _HEADERS_FLAG
        headers = encode_table(message.headers)
    if message.expiration_ms is not None:
        flags |= _EXPIRATION_FLAG
        expiration = _expiration(message.expiration_ms)
    return flags, b"".join(
        (
            content_type,
            headers,
            _PERSISTENT,
            expiration,
            encode_short("the message id", message_id),
            _timestamp(timestamp),
        )
    )


def _foreign_properties(message: Message) -> tuple[int, bytes]:
    """The same of a message that may have any property, or none."""
    rare = message.rare or _NOTHING_RARE
    properties = (
        (1 << 15, _text("the content type", message.content_type)),
        (1 << 14, _text("the content encoding", rare.content_encoding)),
        (1 << 13, encode_table(message.headers) if message.headers else None),
        (1 << 12, _PERSISTENT),
        (1 << 11, None if rare.priority is None else _priority(rare.priority)),
        (1 << 10, _text("the correlation id", rare.correlation_id)),
        (1 << 9, _text("the reply address", rare.reply_to)),
        (1 << 8, None if message.expiration_ms is None else _expiration(message.expiration_ms)),
        (1 << 7, _text("the message id", message.message_id)),
        (1 << 6, None if message.timestamp is None else _timestamp(message.timestamp)),
        (1 << 5, _text("the type", rare.type)),
        (1 << 3, _text("the application id", rare.app_id)),
        (1 << 2, _text("the cluster id", rare.cluster_id)),
    )
    present = [(flag, raw) for flag, raw in properties if raw is not None]
    return sum(flag for flag, _ in present), b"".join(raw for _, raw in present)


def _text(subject: str, value: str | None) -> bytes | None:
    return None if value is None else encode_short(subject, value)


def _priority(value: int) -> bytes:
    try:
        return _OCTET.pack(value)
    except struct.error:
        raise EncodingError(f"the priority {value!r} is not between 0 and 255") from None


@lru_cache(maxsize=256)
def _content_type(value: str) -> bytes:
    return encode_short("the content type", value)


def _expiration(milliseconds: int) -> bytes:
    if not 0 <= milliseconds <= LONGEST_EXPIRATION_MS:
        raise EncodingError(
            f"the expiration of {milliseconds} ms is not between 0 and {LONGEST_EXPIRATION_MS} (49 days)"
        )
    return encode_short("the expiration", str(milliseconds))


def _timestamp(seconds: int) -> bytes:
    try:
        return _LONG_LONG.pack(seconds)
    except struct.error:
        raise EncodingError(f"the timestamp {seconds!r} is not a number of seconds since 1970") from None
