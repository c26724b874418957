"""A connection that reads all that has arrived at once."""

import asyncio
import struct
import time
from collections.abc import Iterator
from typing import Any, Protocol, Self

import aiormq
import pamqp.frame
from aiormq.exceptions import AMQPConnectionError, InvalidFrameError
from pamqp.exceptions import PAMQPException

from outbox_core.inflow import METHOD, Frame, FramingError, Inflow

_READ_BYTES = 256 * 1024
LONGEST_TURN_SECONDS = 0.05
"""How long sinks may keep the loop from all else, heartbeats included."""
_CLOSING = {struct.pack(">HH", 20, 40), struct.pack(">HH", 20, 41)}
"""How `channel.close` and its answer begin."""
_FRAME_START = struct.Struct(">BHI")
_LAST_FRAME_TIME = "_Connection__last_frame_time"


class Sink(Protocol):
    """Who takes the frames of a channel in the place of aiormq."""

    def take(self, kind: int, payload: bytes) -> bool:
        """Take in a frame, in the order of arrival; False leaves it to aiormq."""

    def end(self) -> None:
        """The broker closes the channel, or has closed it: write nothing more on it."""


class BulkConnection(aiormq.Connection):
    """aiormq's connection, with sinks beside its channels."""

    # A silent connection has to be given up before the broker does, after 2 to 3 heartbeats, and delivers our
    # messages to others: for 10 s that is 14.3 s, seen at most 5 s later. The broker sends one every 5 s.
    HEARTBEAT_GRACE_MULTIPLIER: Any = 1.3

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.sinks: dict[int, Sink] = {}
        """By the number of the channel."""
        self._stream: asyncio.StreamWriter | None = None

    def write_at_once(self, payload: bytes) -> None:
        """Write whole frames, before what waits in the write queue and without ever waiting."""
        if self._stream is not None and not self._stream.is_closing():
            self._stream.write(payload)

    async def _Connection__reader(self, receiver: Any) -> None:  # noqa: N802 - aiormq's name
        own: Any = super()
        await own._Connection__reader(_Receiver(self, receiver.reader))

    async def _Connection__writer(self, stream: asyncio.StreamWriter) -> None:  # noqa: N802 - aiormq's name
        self._stream = stream
        own: Any = super()
        await own._Connection__writer(stream)


class _Receiver:
    """The frames that no sink has taken, one by one, as aiormq's reader wants them."""

    def __init__(self, connection: BulkConnection, stream: asyncio.StreamReader) -> None:
        self._connection = connection
        self._stream = stream
        self._inflow = Inflow(connection.connection_tune.frame_max)
        self._frames: Iterator[Frame] = iter(())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[int, int, Any]:
        sinks = self._connection.sinks
        turn_ends = time.monotonic() + LONGEST_TURN_SECONDS
        while True:
            for kind, number, payload in self._frames:
                sink = sinks.get(number)
                if sink is None or not sink.take(kind, payload):
                    return self._left_over(kind, number, payload)
                if kind == METHOD and time.monotonic() > turn_ends:
                    # Frames that wait here are no silence of the broker's.
                    self._note_life()
                    await asyncio.sleep(0)
                    turn_ends = time.monotonic() + LONGEST_TURN_SECONDS
            await self._read()
            turn_ends = time.monotonic() + LONGEST_TURN_SECONDS

    async def _read(self) -> None:
        try:
            data = await self._stream.read(_READ_BYTES)
        except OSError as error:
            raise AMQPConnectionError(f"Server communication error: {error!r}") from error
        if not data:
            raise AMQPConnectionError("Server connection unexpectedly closed")
        self._note_life()
        try:
            self._frames = iter(self._inflow.feed(data))
        except FramingError as error:
            raise InvalidFrameError(str(error)) from error

    def _note_life(self) -> None:
        setattr(self._connection, _LAST_FRAME_TIME, self._connection.loop.time())

    def _left_over(self, kind: int, number: int, payload: bytes) -> tuple[int, int, Any]:
        if kind == METHOD and payload[:4] in _CLOSING:
            sink = self._connection.sinks.pop(number, None)
            if sink is not None:
                sink.end()
        whole = _FRAME_START.pack(kind, number, len(payload)) + payload + b"\xce"
        try:
            return pamqp.frame.unmarshal(whole)
        except PAMQPException as error:
            raise InvalidFrameError(str(error)) from error
