"""What was delivered or returned, read from the bytes of its method and its header.

Pure. Written by hand, as `frames` is, because every message passes through here. What repeats between
messages is kept: the exchange and routing key, content types, header names.
"""

import struct
from functools import lru_cache

from outbox_core.consumer import Received
from outbox_core.header_tables import DecodingError, decode_short, decode_table
from outbox_core.publisher import Message, RareProperties, Returned

_CONTENT_TYPE, _CONTENT_ENCODING, _HEADERS, _DELIVERY_MODE = 1 << 15, 1 << 14, 1 << 13, 1 << 12
_PRIORITY, _CORRELATION_ID, _REPLY_TO, _EXPIRATION = 1 << 11, 1 << 10, 1 << 9, 1 << 8
_MESSAGE_ID, _TIMESTAMP, _TYPE, _USER_ID = 1 << 7, 1 << 6, 1 << 5, 1 << 4
_APP_ID, _CLUSTER_ID = 1 << 3, 1 << 2
_RARE = _CONTENT_ENCODING | _PRIORITY | _CORRELATION_ID | _REPLY_TO | _TYPE | _USER_ID | _APP_ID | _CLUSTER_ID
_BEFORE_MESSAGE_ID = tuple(1 << shift for shift in range(15, 7, -1))
_PERSISTENT = 2

_tag_and_redelivered = struct.Struct(">QB").unpack_from
_flags = struct.Struct(">12xH").unpack_from
_length = struct.Struct(">I").unpack_from
_seconds = struct.Struct(">Q").unpack_from
_code = struct.Struct(">4xH").unpack_from
_PROPERTIES = 14
"""Where the properties begin in a header."""


def tag_of(method: bytes) -> int:
    """The delivery tag."""
    tag: int = _tag_and_redelivered(method, 5 + method[4])[0]
    return tag


def received_of(method: bytes, header: bytes, body: bytes) -> Received:
    """The delivery of a `basic.deliver`, or a `DecodingError` that says what of it cannot be read."""
    try:
        after_consumer = 5 + method[4]
        tag, redelivered = _tag_and_redelivered(method, after_consumer)
        exchange, routing_key = _route(method[after_consumer + 9 :])
        return Received(_message(routing_key, header, body), tag, exchange, redelivered != 0)
    except (IndexError, struct.error):
        raise DecodingError("its properties are cut off") from None


def returned_of(method: bytes, header: bytes) -> tuple[str, str, Returned]:
    """The message id and the routing key of a `basic.return`, and why it came back."""
    (code,) = _code(method)
    text, after = _short(method, 6)
    _, routing_key = _route(method[after:])
    return _message_id(header), routing_key, Returned(code, text)


@lru_cache(maxsize=4096)
def _route(raw: bytes) -> tuple[str, str]:
    """The exchange and the routing key."""
    exchange, after = _short(raw, 0)
    return exchange, _short(raw, after)[0]


@lru_cache(maxsize=256)
def _content_type(raw: bytes) -> str:
    return decode_short(raw)


def _message_id(header: bytes) -> str:
    """Empty where there is none; nothing else of the header is read."""
    (flags,) = _flags(header)
    at = _PROPERTIES
    for flag in _BEFORE_MESSAGE_ID:
        if flags & flag:
            if flag == _HEADERS:
                at += 4 + _length(header, at)[0]
            elif flag in (_DELIVERY_MODE, _PRIORITY):
                at += 1
            else:
                at += 1 + header[at]
    return _short(header, at)[0] if flags & _MESSAGE_ID else ""


def _message(routing_key: str, header: bytes, body: bytes) -> Message:
    (flags,) = _flags(header)
    if flags & _RARE:
        return _foreign_message(routing_key, header, body)
    at = _PROPERTIES
    content_type = message_id = timestamp = expiration = rare = None
    headers: dict[str, object] = {}
    if flags & _CONTENT_TYPE:
        end = at + 1 + header[at]
        content_type = _content_type(header[at + 1 : end])
        at = end
    if flags & _HEADERS:
        end = at + 4 + _length(header, at)[0]
        headers = decode_table(header, at + 4, end)
        at = end
    if flags & _DELIVERY_MODE:
        if header[at] != _PERSISTENT:
            rare = RareProperties(delivery_mode=header[at])
        at += 1
    else:
        rare = RareProperties(delivery_mode=None)
    if flags & _EXPIRATION:
        end = at + 1 + header[at]
        expiration = _milliseconds(header[at + 1 : end])
        at = end
    if flags & _MESSAGE_ID:
        end = at + 1 + header[at]
        message_id = decode_short(header[at + 1 : end])
        at = end
    if flags & _TIMESTAMP:
        (timestamp,) = _seconds(header, at)
    return Message(routing_key, body, message_id, timestamp, content_type, headers, expiration, rare)


def _foreign_message(routing_key: str, header: bytes, body: bytes) -> Message:
    """The same with any property at all."""
    (flags,) = _flags(header)
    at = _PROPERTIES
    texts: dict[int, str] = {}
    headers: dict[str, object] = {}
    delivery_mode = priority = timestamp = None
    for shift in range(15, 1, -1):
        flag = 1 << shift
        if not flags & flag:
            continue
        if flag == _HEADERS:
            end = at + 4 + _length(header, at)[0]
            headers = decode_table(header, at + 4, end)
            at = end
        elif flag == _DELIVERY_MODE:
            delivery_mode, at = header[at], at + 1
        elif flag == _PRIORITY:
            priority, at = header[at], at + 1
        elif flag == _TIMESTAMP:
            (timestamp,), at = _seconds(header, at), at + 8
        else:
            texts[flag], at = _short(header, at)
    expiration = texts.get(_EXPIRATION)
    return Message(
        routing_key=routing_key,
        body=body,
        message_id=texts.get(_MESSAGE_ID),
        timestamp=timestamp,
        content_type=texts.get(_CONTENT_TYPE),
        headers=headers,
        expiration_ms=None if expiration is None else _milliseconds(expiration.encode()),
        rare=RareProperties(
            content_encoding=texts.get(_CONTENT_ENCODING),
            priority=priority,
            correlation_id=texts.get(_CORRELATION_ID),
            reply_to=texts.get(_REPLY_TO),
            type=texts.get(_TYPE),
            app_id=texts.get(_APP_ID),
            cluster_id=texts.get(_CLUSTER_ID),
            user_id=texts.get(_USER_ID),
            delivery_mode=delivery_mode,
        ),
    )


def _short(raw: bytes, at: int) -> tuple[str, int]:
    """The text there, and where the next thing begins."""
    end = at + 1 + raw[at]
    return decode_short(raw[at + 1 : end]), end


def _milliseconds(raw: bytes) -> int | None:
    """The expiration; None for one that is no number, which the broker takes from nobody."""
    return int(raw) if raw.isdigit() else None
