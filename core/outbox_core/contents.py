"""Messages put together from the frames of a channel: a method, a header, and as many bodies as it takes."""

import struct
from collections.abc import Callable
from typing import TypeAlias

from outbox_core.inflow import BODY, HEADER, METHOD

DELIVER = struct.pack(">HH", 60, 60)
"""How the method frame of a delivery begins."""
RETURN = struct.pack(">HH", 60, 50)
"""How the method frame of a returned message begins."""

OnContent: TypeAlias = Callable[[bytes, bytes, bytes], None]
"""Called with the method, the header and the body."""

_body_size = struct.Struct(">4xQ").unpack_from


class Contents:
    """One kind of message on one channel: the broker sends them one after the other, never mixed."""

    __slots__ = ("_header", "_method", "_missing", "_on_content", "_parts", "_wanted")

    def __init__(self, wanted: bytes, on_content: OnContent) -> None:
        """`wanted` is how their method frames begin."""
        self._wanted = wanted
        self._on_content = on_content
        self._method = b""
        self._header = b""
        self._parts: list[bytes] = []
        self._missing = 0

    def take(self, kind: int, payload: bytes) -> bool:
        """Take in a frame; False where it belongs to something else."""
        if kind == METHOD:
            if not payload.startswith(self._wanted):
                return False
            self._method = payload
            return True
        if not self._method:
            return False
        if kind == BODY:
            self._take_body(payload)
        elif kind == HEADER:
            self._header = payload
            (self._missing,) = _body_size(payload)
            if not self._missing:
                self._finish(b"")
        return True

    def _take_body(self, payload: bytes) -> None:
        self._missing -= len(payload)
        if self._missing > 0:
            self._parts.append(payload)
        elif self._parts:
            parts, self._parts = [*self._parts, payload], []
            self._finish(b"".join(parts))
        else:
            self._finish(payload)

    def _finish(self, body: bytes) -> None:
        method, self._method = self._method, b""
        self._on_content(method, self._header, body)
