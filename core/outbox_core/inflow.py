"""What the broker sends, cut into frames.

Pure: fed with bytes as they arrive, it hands out all frames that are complete and keeps the rest.
"""

import struct
from typing import TypeAlias

METHOD, HEADER, BODY = 1, 2, 3

Frame: TypeAlias = tuple[int, int, bytes]
"""Its kind, the number of its channel, and what is in it."""

_FRAME_START = struct.Struct(">BHI")
_START_SIZE = _FRAME_START.size
_END = 0xCE
_OVERHEAD = _START_SIZE + 1


class FramingError(ValueError):
    """Bytes that are no frames: whoever sent them is no broker, or some are missing in between."""


class Inflow:
    """The bytes of one connection."""

    def __init__(self, frame_max: int) -> None:
        """A frame has at most `frame_max` bytes, where this is not 0."""
        self._frame_max = frame_max
        self._pieces: list[bytes] = []
        """The beginning of a frame, of which at least `_missing` bytes have not arrived."""
        self._missing = 0

    def feed(self, data: bytes) -> list[Frame]:
        """All frames that are complete with `data`, in their order."""
        if self._pieces:
            self._pieces.append(data)
            self._missing -= len(data)
            if self._missing > 0:
                return []
            data = b"".join(self._pieces)
            self._pieces = []
        frames: list[Frame] = []
        size, start = len(data), 0
        while size - start >= _OVERHEAD:
            kind, channel, length = _FRAME_START.unpack_from(data, start)
            payload = start + _START_SIZE
            end = payload + length
            if end >= size:
                break
            if data[end] != _END:
                raise FramingError(
                    f"a frame of {length} bytes does not end as one: {data[start:payload].hex()}"
                )
            frames.append((kind, channel, data[payload:end]))
            start = end + 1
        if start < size:
            self._keep(data[start:])
        return frames

    def _keep(self, rest: bytes) -> None:
        whole = _OVERHEAD
        if len(rest) >= _START_SIZE:
            whole += _FRAME_START.unpack_from(rest)[2]
            if 0 < self._frame_max < whole:
                raise FramingError(f"a frame of {whole} bytes where {self._frame_max} are agreed upon")
        self._pieces = [rest]
        self._missing = whole - len(rest)
