"""A message's body for people and for programs. Pure."""

import json
from base64 import b64encode

from outbox.body import JSON

_HEX_BYTES = 256


def readable(body: bytes) -> str:
    """JSON with indentation, text as it is, and of anything else the beginning in hexadecimal."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        rest = f" … ({len(body)} bytes)" if len(body) > _HEX_BYTES else ""
        return body[:_HEX_BYTES].hex(" ") + rest
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def brief(body: bytes, most: int) -> str:
    """The beginning of it on one line, of at most so many characters."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = body[:_HEX_BYTES].hex(" ")
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"


def emitted(body: bytes, content_type: str | None) -> tuple[bytes | str, str | None]:
    """What to emit for a body that a person has written, and its content type where it is known.

    Without a content type JSON is sent as it is written, another text as JSON's text without the end of its
    last line, and what is none at all as bytes.
    """
    if content_type is not None:
        return body, content_type
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return body, None
    try:
        json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return text.removesuffix("\n"), None
    return body, JSON


def as_json(body: bytes) -> object:
    """What a program gets: the value where it is JSON, else a text, else the bytes in base 64."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(body).decode()}
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _refuse(constant: str) -> None:
    """Python reads NaN and Infinity, which no JSON has."""
    raise ValueError(constant)
