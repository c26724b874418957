"""AMQP 0-9-1 frames of a published message as bytes.

Pure. Written by hand because every message passes through here, and pamqp's `marshal` takes several times as
long. What repeats between messages is kept: the method frame of a routing key, content types, header names.
"""

import math
import struct
from collections.abc import Callable, Mapping
from functools import lru_cache

from outbox_core.publisher import Message

LONGEST_EXPIRATION_MS = 2**32 - 1
"""RabbitMQ closes the channel over a longer one, and with it everything else that is under way."""

_METHOD, _HEADER, _BODY = 1, 2, 3
_BASIC, _PUBLISH = 60, 40
_MANDATORY = b"\x01"
_PERSISTENT = b"\x02"
_END = b"\xce"
_FRAME_OVERHEAD = 8

_CONTENT_TYPE_FLAG, _HEADERS_FLAG, _EXPIRATION_FLAG = 1 << 15, 1 << 13, 1 << 8
_ALWAYS_FLAGS = 1 << 12 | 1 << 7 | 1 << 6  # delivery mode, message id, timestamp

_FRAME_START = struct.Struct(">BHI")
_HEADER_START = struct.Struct(">BHIHHQH")
_HEADER_FIXED_SIZE = _HEADER_START.size - _FRAME_START.size
_UNSIGNED = struct.Struct(">I")
_COUNTED = struct.Struct(">cI")
_LONG_LONG = struct.Struct(">Q")
_INTEGER = struct.Struct(">cq")
_DOUBLE = struct.Struct(">cd")
_SHORT_LENGTHS = tuple(bytes((length,)) for length in range(256))


class EncodingError(ValueError):
    """A message that cannot be put on the wire; the text names the part of it and what is wrong."""


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


def _append_chunks(parts: list[bytes], channel_number: int, body: bytes, longest: int) -> None:
    for start in range(0, len(body), longest):
        chunk = body[start : start + longest]
        parts += (_FRAME_START.pack(_BODY, channel_number, len(chunk)), chunk, _END)


@lru_cache(maxsize=4096)
def _publish_frame(channel_number: int, exchange: str, routing_key: str) -> bytes:
    arguments = _short("the exchange", exchange) + _short("the routing key", routing_key)
    payload = struct.pack(">HHH", _BASIC, _PUBLISH, 0) + arguments + _MANDATORY
    return _FRAME_START.pack(_METHOD, channel_number, len(payload)) + payload + _END


def _properties(message: Message) -> tuple[int, bytes]:
    """The property flags and the list of those that are set, in the order of the flags."""
    flags = _ALWAYS_FLAGS
    content_type = headers = expiration = b""
    if message.content_type is not None:
        flags |= _CONTENT_TYPE_FLAG
        content_type = _content_type(message.content_type)
    if message.headers:
        flags |= _HEADERS_FLAG
        headers = _headers(message.headers)
    if message.expiration_ms is not None:
        flags |= _EXPIRATION_FLAG
        expiration = _expiration(message.expiration_ms)
    message_id = _short("the message id", message.message_id)
    return flags, b"".join(
        (content_type, headers, _PERSISTENT, expiration, message_id, _timestamp(message.timestamp))
    )


@lru_cache(maxsize=256)
def _content_type(value: str) -> bytes:
    return _short("the content type", value)


def _expiration(milliseconds: int) -> bytes:
    if not 0 <= milliseconds <= LONGEST_EXPIRATION_MS:
        raise EncodingError(
            f"the expiration of {milliseconds} ms is not between 0 and {LONGEST_EXPIRATION_MS} (49 days)"
        )
    return _short("the expiration", str(milliseconds))


def _timestamp(seconds: int) -> bytes:
    try:
        return _LONG_LONG.pack(seconds)
    except struct.error:
        raise EncodingError(f"the timestamp {seconds!r} is not a number of seconds since 1970") from None


def _short(subject: str, value: str) -> bytes:
    """A text of at most 255 bytes, after its length."""
    try:
        raw = value.encode()
        return _SHORT_LENGTHS[len(raw)] + raw
    except IndexError:
        raise EncodingError(f"{subject} is {len(raw)} bytes long and AMQP takes 255; shorten it") from None
    except UnicodeEncodeError:
        raise EncodingError(f"{subject} {value!r} is not text that UTF-8 can hold") from None


def _headers(headers: Mapping[str, object]) -> bytes:
    """The header table, or an error that names the header at fault, also where it is deep inside of one."""
    fields = []
    for name, value in headers.items():
        try:
            fields.append(_name(name) + _value(value))
        except EncodingError as error:
            raise EncodingError(f"header {name!r:.80}: {error}") from None
        except RecursionError:
            raise EncodingError(f"header {name!r:.80}: it is nested too deeply") from None
    table = b"".join(fields)
    return _UNSIGNED.pack(len(table)) + table


@lru_cache(maxsize=1024)
def _name(name: str) -> bytes:
    if not isinstance(name, str):
        raise EncodingError("a header's name must be text")
    return _short("the name", name)


def _value(value: object) -> bytes:
    return (_ENCODERS.get(type(value)) or _encoder(value))(value)


def _encoder(value: object) -> Callable[..., bytes]:
    """That of the class which `value` inherits from."""
    for kind, encode in _ENCODERS.items():
        if isinstance(value, kind):
            return encode
    raise EncodingError(
        f"a {type(value).__name__} cannot be in a header; "
        "use text, a number, a boolean, None, a list or a dictionary"
    )


def _text(value: str) -> bytes:
    try:
        raw = value.encode()
    except UnicodeEncodeError:
        raise EncodingError("it is not text that UTF-8 can hold") from None
    return _COUNTED.pack(b"S", len(raw)) + raw


def _boolean(value: bool) -> bytes:
    return b"t\x01" if value else b"t\x00"


def _integer(value: int) -> bytes:
    try:
        return _INTEGER.pack(b"l", value)
    except struct.error:
        raise EncodingError("the number is larger than 64 bits; pass it as text") from None


def _float(value: float) -> bytes:
    # RabbitMQ's parser takes neither for a number, and closes the connection.
    if not math.isfinite(value):
        raise EncodingError(f"{value} is not a number that the broker takes; pass it as text")
    return _DOUBLE.pack(b"d", value)


def _nothing(_: None) -> bytes:
    return b"V"


def _list(values: list[object]) -> bytes:
    items = b"".join(map(_value, values))
    return _COUNTED.pack(b"A", len(items)) + items


def _table(table: Mapping[str, object]) -> bytes:
    fields = b"".join([_name(name) + _value(value) for name, value in table.items()])
    return _COUNTED.pack(b"F", len(fields)) + fields


# A boolean is an int too: the order matters to `_encoder`.
_ENCODERS: Mapping[type, Callable[..., bytes]] = {
    str: _text,
    bool: _boolean,
    int: _integer,
    float: _float,
    type(None): _nothing,
    list: _list,
    dict: _table,
}
