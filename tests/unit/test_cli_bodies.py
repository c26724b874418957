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


@pytest.mark.parametrize(
    ("body", "brief"),
    [
        (b'{"a": 1}', '{"a": 1}'),
        (b'{\n  "name": "a long one"\n}', '{ "name": "a lo…'),
        (b"sixteen letters!", "sixteen letters!"),
        (b"", ""),
        (b"\x00\xff", "00 ff"),
    ],
)
def test_a_body_is_shortened_to_one_line(body: bytes, brief: str) -> None:
    assert bodies.brief(body, 16) == brief


@pytest.mark.parametrize(
    ("written", "content_type", "emitted"),
    [
        (b'{"sum": 1.10}', None, (b'{"sum": 1.10}', "application/json")),
        (b'"hello"', None, (b'"hello"', "application/json")),
        (b"hello", None, ("hello", None)),
        (b"two\nlines\n", None, ("two\nlines", None)),
        (b"NaN", None, ("NaN", None)),
        (b"", None, ("", None)),
        (b"\x00\xff", None, (b"\x00\xff", None)),
        (b"<a/>", "text/xml", (b"<a/>", "text/xml")),
        (b"1", "text/plain", (b"1", "text/plain")),
    ],
)
def test_json_and_what_has_a_content_type_is_emitted_as_it_is_written(
    written: bytes, content_type: str | None, emitted: tuple[bytes | str, str | None]
) -> None:
    assert bodies.emitted(written, content_type) == emitted
