"""Header tables: read as pamqp, which others wrote, reads them, and written back as they were."""

import math
import struct
from collections import OrderedDict
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import StrEnum
from typing import Any
from uuid import UUID

import pamqp.decode
import pamqp.encode
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox_core.header_tables import (
    DecodingError,
    EncodingError,
    decode_short,
    decode_table,
    encode_short,
    encode_table,
)


def decoded(table: bytes) -> dict[str, object]:
    """The table, without the length before it."""
    assert struct.unpack(">I", table[:4]) == (len(table) - 4,)
    return decode_table(b"before" + table[4:] + b"after", 6, 6 + len(table) - 4)


def names(*, longest: int = 255) -> st.SearchStrategy[str]:
    return st.text(max_size=longest).filter(lambda text: len(text.encode()) <= longest)


times = st.datetimes(datetime(1970, 1, 1), datetime(2106, 1, 1), timezones=st.just(UTC)).map(  # noqa: DTZ001 - the strategy adds it
    lambda time: time.replace(microsecond=0)
)
decimals = st.builds(
    lambda number, scale: Decimal(number).scaleb(-scale), st.integers(0, 2**31 - 1), st.integers(0, 9)
)
common = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text()
    | times
    | decimals
    | st.binary().map(bytearray)
)


def tables(scalars: st.SearchStrategy[Any], longest: int = 255) -> st.SearchStrategy[dict[str, Any]]:
    values = st.recursive(
        scalars,
        lambda inner: (
            st.lists(inner, max_size=4) | st.dictionaries(names(longest=longest), inner, max_size=4)
        ),
        max_leaves=8,
    )
    return st.dictionaries(names(longest=longest), values, max_size=5)


@given(tables(common | st.floats(allow_nan=False, allow_infinity=False, width=32), longest=128))
def test_what_pamqp_writes_is_read_as_it_was(table: dict[str, Any]) -> None:
    assert decoded(pamqp.encode.field_table(table)) == table


@given(tables(common | st.floats(allow_nan=False, allow_infinity=False)))
def test_what_we_write_is_what_pamqp_reads_and_we(table: dict[str, Any]) -> None:
    raw = encode_table(table)
    assert pamqp.decode.field_table(raw) == (len(raw), table)
    assert decoded(raw) == table


@given(st.text() | st.binary(max_size=255).map(decode_short))
def test_a_short_text_survives_whatever_its_bytes_are(text: str) -> None:
    try:
        raw = encode_short("it", text)
    except EncodingError as error:
        assert "it is" in str(error)  # noqa: PT017 - only where it is too long
        return
    assert decode_short(raw[1:]) == text
    assert raw[0] == len(raw) - 1


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b"S\x00\x00\x00\x02\xc3\xa9", "é"),
        (b"S\x00\x00\x00\x02\xc3\x28", b"\xc3\x28"),
        (b"t\x01", True),
        (b"t\x00", False),
        (b"b\xff", -1),
        (b"B\xff", 255),
        (b"s\xff\xfe", -2),
        (b"U\xff\xfe", -2),
        (b"u\xff\xfe", 65_534),
        (b"I\xff\xff\xff\xfe", -2),
        (b"i\xff\xff\xff\xfe", 2**32 - 2),
        (b"l\xff\xff\xff\xff\xff\xff\xff\xfe", -2),
        (b"L\xff\xff\xff\xff\xff\xff\xff\xfe", -2),
        (b"f\x3f\x00\x00\x00", 0.5),
        (b"d\x3f\xe0\x00\x00\x00\x00\x00\x00", 0.5),
        (b"D\x02\x00\x00\x00\x7b", Decimal("1.23")),
        (b"T\x00\x00\x00\x00\x00\x00\x00\x01", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
        (b"T\xff\xff\xff\xff\xff\xff\xff\xff", 2**64 - 1),
        (b"F\x00\x00\x00\x04\x01at\x01", {"a": True}),
        (b"A\x00\x00\x00\x04t\x01b\x05", [True, 5]),
        (b"x\x00\x00\x00\x02\x00\xff", bytearray(b"\x00\xff")),
        (b"V", None),
        (b"\x00", None),
    ],
)
def test_every_type_that_a_broker_may_send_is_read(raw: bytes, value: object) -> None:
    table = b"\x01k" + raw + b"\x04nextt\x01"
    read = decode_table(table, 0, len(table))
    assert read == {"k": value, "next": True}
    assert type(read["k"]) is type(value)


@pytest.mark.parametrize(
    "value",
    ["text", b"\xc3\x28", True, 5, 0.5, Decimal("1.230"), bytearray(b"x"), None, [1, "a"], {"a": []}],
)
def test_a_value_is_written_back_with_the_type_it_was_read_with(value: object) -> None:
    raw = encode_table({"k": value})
    read = decoded(raw)
    assert read == {"k": value}
    assert type(read["k"]) is type(value)
    assert encode_table(read) == raw


def test_a_time_is_written_whatever_its_zone() -> None:
    zone = timezone(timedelta(hours=2))
    assert decoded(encode_table({"at": datetime(2026, 1, 1, 2, tzinfo=zone)})) == {
        "at": datetime(2026, 1, 1, tzinfo=UTC)
    }


def test_a_subclass_is_written_as_what_it_inherits_from() -> None:
    class Colour(StrEnum):
        RED = "red"

    headers = {"colour": Colour.RED, "table": OrderedDict(a=1)}
    assert decoded(encode_table(headers)) == {"colour": "red", "table": {"a": 1}}


def test_a_float_keeps_all_of_its_64_bits() -> None:
    assert decoded(encode_table({"x": math.pi})) == {"x": math.pi}


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("id", UUID(int=1), "a UUID cannot be in a header"),
        ("pair", (1, 2), "a tuple cannot be in a header"),
        ("big", 2**63, "larger than 64 bits"),
        ("nan", math.nan, "nan is not a number that the broker takes"),
        ("inf", -math.inf, "-inf is not a number that the broker takes"),
        ("half", "\ud800", "UTF-8"),
        ("early", datetime(1969, 1, 1, tzinfo=UTC), "is before 1970"),
        ("money", Decimal("-1.5"), "the decimal -1.5 is not one of 32 bits"),
        ("money", Decimal("42949672.96"), "is not one of 32 bits"),
        ("money", Decimal("1E+999999"), "is not one of 32 bits"),
        ("money", Decimal("NaN"), "is not one of 32 bits"),
        ("deep", {"list": [{"big": 2**64}]}, "larger than 64 bits"),
        ("table", {1: "one"}, "name must be text"),
        ("n" * 256, 1, "the name is 256 bytes long"),
    ],
)
def test_a_header_that_cannot_be_sent_is_named(name: str, value: object, complaint: str) -> None:
    with pytest.raises(EncodingError) as caught:
        encode_table({"fine": 1, name: value})

    assert str(caught.value).startswith(f"header {name!r:.80}: ")
    assert complaint in str(caught.value)


def test_a_header_that_is_nested_without_end_is_named() -> None:
    endless: list[object] = []
    endless.append(endless)

    with pytest.raises(EncodingError, match="header 'endless': it is nested too deeply"):
        encode_table({"endless": endless})


def test_a_table_that_is_nested_too_deeply_is_not_read() -> None:
    nested = b"V"
    for _ in range(5000):
        nested = b"A" + struct.pack(">I", len(nested)) + nested
    with pytest.raises(DecodingError, match="nested too deeply"):
        decode_table(b"\x01k" + nested, 0, len(nested) + 2)


@given(table=tables(common), data=st.data())
def test_a_table_that_is_cut_off_or_damaged_is_an_error_and_nothing_else(
    table: dict[str, Any], data: st.DataObject
) -> None:
    raw = bytearray(encode_table(table)[4:])
    end = data.draw(st.integers(0, len(raw)))
    if raw:
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode_table(bytes(raw[:end]), 0, end)
    except DecodingError as error:
        assert "its headers are" in str(error)  # noqa: PT017 - whether it is damaged is a matter of luck


@pytest.mark.parametrize("raw", [b"\x01kZ", b"\x01k", b"\x05k", b"\x01kS\x00\x00\x00\x05abc", b"\x01kl\x00"])
def test_what_is_no_table_is_not_read(raw: bytes) -> None:
    with pytest.raises(DecodingError, match="not what AMQP calls a table"):
        decode_table(raw, 0, len(raw))
