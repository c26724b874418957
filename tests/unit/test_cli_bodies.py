"""Bodies for people and for programs."""

import pytest

from outbox_cli import bodies


@pytest.mark.parametrize(
    ("body", "readable", "as_json"),
    [
        (b'{"a": 1}', '{\n  "a": 1\n}', {"a": 1}),
        (b'"\xc3\xbc"', '"ü"', "ü"),
        (b"hello", "hello", "hello"),
        (b"", "", ""),
        (b"\x00\xff", "00 ff", {"base64": "AP8="}),
    ],
)
def test_a_body_is_shown_as_what_it_is(body: bytes, readable: str, as_json: object) -> None:
    assert bodies.readable(body) == readable
    assert bodies.as_json(body) == as_json


def test_of_many_bytes_the_beginning_is_shown() -> None:
    assert bodies.readable(b"\xff" * 1000).endswith("ff … (1000 bytes)")


def test_what_is_nested_too_deeply_is_text() -> None:
    deep = b"[" * 100_000
    assert bodies.readable(deep) == deep.decode()
