"""Header tables of AMQP 0-9-1 as bytes, both ways.

Pure. Written by hand, because every message passes through here twice. Whatever the broker can hand out is
read into a value that is written back as what it was, except that numbers always take 64 bits.
"""

import math
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import TypeAlias

_UNSIGNED = struct.Struct(">I")
_COUNTED = struct.Struct(">cI")
_INTEGER = struct.Struct(">cq")
_DOUBLE = struct.Struct(">cd")
_TIMESTAMP = struct.Struct(">cQ")
_DECIMAL = struct.Struct(">cBI")
_SHORT_LENGTHS = tuple(bytes((length,)) for length in range(256))
_DECIMALS_END = 2**32
_LAST_SECOND = 253_402_300_799
"""Of the year 9999, where Python's calendar ends."""


class EncodingError(ValueError):
    """A message that cannot be put on the wire; the text names the part of it and what is wrong."""


class DecodingError(ValueError):
    """Bytes that are not what AMQP calls a message; the text says where."""


# --- Writing ------------------------------------------------------------------------------------------------


def encode_short(subject: str, value: str) -> bytes:
    """A text of at most 255 bytes, after its length."""
    try:
        raw = value.encode()
    except UnicodeEncodeError:
        raw = _as_received(subject, value)
    try:
        return _SHORT_LENGTHS[len(raw)] + raw
    except IndexError:
        raise EncodingError(f"{subject} is {len(raw)} bytes long and AMQP takes 255; shorten it") from None


def encode_table(headers: Mapping[str, object]) -> bytes:
    """The header table, or an error that names the header at fault, also where it is deep inside of one."""
    fields = []
    for name, value in headers.items():
        try:
            fields.append(_encode_name(name) + _encode(value))
        except EncodingError as error:
            raise EncodingError(f"header {name!r:.80}: {error}") from None
        except RecursionError:
            raise EncodingError(f"header {name!r:.80}: it is nested too deeply") from None
    table = b"".join(fields)
    return _UNSIGNED.pack(len(table)) + table


def _as_received(subject: str, value: str) -> bytes:
    """What `decode_short` has made a text of although it is none in UTF-8."""
    try:
        return value.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        raise EncodingError(f"{subject} {value!r} is not text that UTF-8 can hold") from None


@lru_cache(maxsize=1024)
def _encode_name(name: str) -> bytes:
    if not isinstance(name, str):
        raise EncodingError("a header's name must be text")
    return encode_short("the name", name)


def _encode(value: object) -> bytes:
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


def _encode_text(value: str) -> bytes:
    try:
        raw = value.encode()
    except UnicodeEncodeError:
        raise EncodingError("it is not text that UTF-8 can hold") from None
    return _COUNTED.pack(b"S", len(raw)) + raw


def _encode_boolean(value: bool) -> bytes:
    return b"t\x01" if value else b"t\x00"


def _encode_integer(value: int) -> bytes:
    try:
        return _INTEGER.pack(b"l", value)
    except struct.error:
        raise EncodingError("the number is larger than 64 bits; pass it as text") from None


def _encode_float(value: float) -> bytes:
    # RabbitMQ's parser takes neither for a number, and closes the connection.
    if not math.isfinite(value):
        raise EncodingError(f"{value} is not a number that the broker takes; pass it as text")
    return _DOUBLE.pack(b"d", value)


def _encode_nothing(_: None) -> bytes:
    return b"V"


def _encode_list(values: list[object]) -> bytes:
    items = b"".join(map(_encode, values))
    return _COUNTED.pack(b"A", len(items)) + items


def _encode_dictionary(table: Mapping[str, object]) -> bytes:
    fields = b"".join([_encode_name(name) + _encode(value) for name, value in table.items()])
    return _COUNTED.pack(b"F", len(fields)) + fields


def _encode_raw_text(value: bytes) -> bytes:
    return _COUNTED.pack(b"S", len(value)) + value


def _encode_binary(value: bytearray) -> bytes:
    return _COUNTED.pack(b"x", len(value)) + value


def _encode_time(value: datetime) -> bytes:
    try:
        return _TIMESTAMP.pack(b"T", math.floor(value.timestamp()))
    except struct.error:
        raise EncodingError(f"the time {value} is before 1970; pass it as text") from None


def _encode_decimal(value: Decimal) -> bytes:
    exponent = value.as_tuple().exponent
    # The other exponents are those of what is no number.
    if isinstance(exponent, int) and value < _DECIMALS_END:
        scale = max(0, -exponent)
        with suppress(struct.error):
            return _DECIMAL.pack(b"D", scale, int(value.scaleb(scale)))
    raise EncodingError(f"the decimal {value} is not one of 32 bits; pass it as text")


# A boolean is an int too: the order matters to `_encoder`.
_ENCODERS: Mapping[type, Callable[..., bytes]] = {
    str: _encode_text,
    bool: _encode_boolean,
    int: _encode_integer,
    float: _encode_float,
    type(None): _encode_nothing,
    list: _encode_list,
    dict: _encode_dictionary,
    bytes: _encode_raw_text,
    bytearray: _encode_binary,
    datetime: _encode_time,
    Decimal: _encode_decimal,
}


# --- Reading ------------------------------------------------------------------------------------------------


def decode_short(raw: bytes) -> str:
    """The text; one of a client that knows no UTF-8 can at least be told from others, and written back."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode(errors="surrogateescape")


def decode_table(data: bytes, start: int, end: int) -> dict[str, object]:
    """The fields between `start` and `end`."""
    try:
        return _table(data, start, end)
    except (IndexError, KeyError, struct.error):
        raise DecodingError("its headers are not what AMQP calls a table") from None
    except RecursionError:
        raise DecodingError("its headers are nested too deeply") from None


_decode_name = lru_cache(maxsize=1024)(decode_short)

_length_at = _UNSIGNED.unpack_from
_TEXT = ord("S")


def _table(data: bytes, start: int, end: int) -> dict[str, object]:
    table: dict[str, object] = {}
    while start < end:
        stop = start + 1 + data[start]
        name = _decode_name(data[start + 1 : stop])
        kind = data[stop]
        if kind == _TEXT:
            # As `_text` does; nearly all values are texts, and two calls less for each are felt.
            first = stop + 5
            start = first + _length_at(data, stop + 1)[0]
            try:
                table[name] = data[first:start].decode()
            except UnicodeDecodeError:
                table[name] = data[first:start]
        else:
            table[name], start = _DECODERS[kind](data, stop + 1)
    if start != end:
        raise IndexError
    return table


_Decoded: TypeAlias = tuple[object, int]
"""A value, and where the next one begins."""


def _text(data: bytes, start: int) -> _Decoded:
    raw, end = _counted(data, start)
    try:
        return raw.decode(), end
    except UnicodeDecodeError:
        return raw, end


def _binary(data: bytes, start: int) -> _Decoded:
    raw, end = _counted(data, start)
    return bytearray(raw), end


def _counted(data: bytes, start: int) -> tuple[bytes, int]:
    end = start + 4 + _length_at(data, start)[0]
    if end > len(data):
        raise IndexError
    return data[start + 4 : end], end


def _boolean(data: bytes, start: int) -> _Decoded:
    return data[start] != 0, start + 1


def _nothing(_: bytes, start: int) -> _Decoded:
    return None, start


def _list(data: bytes, start: int) -> _Decoded:
    end = start + 4 + _length_at(data, start)[0]
    start += 4
    values = []
    while start < end:
        value, start = _DECODERS[data[start]](data, start + 1)
        values.append(value)
    if start != end:
        raise IndexError
    return values, end


def _dictionary(data: bytes, start: int) -> _Decoded:
    end = start + 4 + _length_at(data, start)[0]
    return _table(data, start + 4, end), end


def _time(data: bytes, start: int) -> _Decoded:
    (seconds,) = _SECONDS.unpack_from(data, start)
    return datetime.fromtimestamp(seconds, UTC) if seconds <= _LAST_SECOND else seconds, start + 8


def _decimal(data: bytes, start: int) -> _Decoded:
    scale, number = _SCALED.unpack_from(data, start)
    return Decimal(number).scaleb(-scale), start + 5


def _number(layout: str) -> Callable[[bytes, int], _Decoded]:
    number = struct.Struct(layout)
    unpack_from, size = number.unpack_from, number.size

    def decode(data: bytes, start: int) -> _Decoded:
        return unpack_from(data, start)[0], start + size

    return decode


_SECONDS = struct.Struct(">Q")
_SCALED = struct.Struct(">BI")

# As RabbitMQ has them, which differs from the specification: https://www.rabbitmq.com/amqp-0-9-1-errata.html
_DECODERS: Mapping[int, Callable[[bytes, int], _Decoded]] = {
    _TEXT: _text,
    ord("t"): _boolean,
    ord("b"): _number(">b"),
    ord("B"): _number(">B"),
    ord("s"): _number(">h"),
    ord("U"): _number(">h"),
    ord("u"): _number(">H"),
    ord("I"): _number(">i"),
    ord("i"): _number(">I"),
    ord("l"): _number(">q"),
    ord("L"): _number(">q"),
    ord("f"): _number(">f"),
    ord("d"): _number(">d"),
    ord("D"): _decimal,
    ord("T"): _time,
    ord("F"): _dictionary,
    ord("A"): _list,
    ord("x"): _binary,
    ord("V"): _nothing,
    0: _nothing,
}
