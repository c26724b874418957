"""A message's body for people and for programs. Pure."""

import json
from base64 import b64encode

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
