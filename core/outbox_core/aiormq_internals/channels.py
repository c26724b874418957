"""Channels: who takes their frames, and what is written on them."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from aiormq.abc import AbstractChannel, ChannelFrame
from pamqp import commands

from outbox_core.aiormq_internals.bulk_connection import BulkConnection, Sink
from outbox_core.publisher import Returned

OnConfirm = Callable[[int, bool, bool], None]
"""Called with the tag, whether all up to it are meant, and whether it is an ack."""
OnReturn = Callable[[str, str, Returned], None]
"""Called with the message id, the routing key and the reason."""

_CLOSE_EVENT = "_Channel__close_event"


def frame_max(channel: AbstractChannel) -> int:
    """The largest frame that the broker takes."""
    connection: Any = channel.connection
    return int(connection.connection_tune.frame_max)


def attach(channel: AbstractChannel, sink: Sink) -> bool:
    """Have `sink` take the channel's frames until it closes; False where the connection is not of our own."""
    if not isinstance(channel.connection, BulkConnection):
        return False
    channel.connection.sinks[channel.number] = sink
    return True


def take_over_confirms(channel: AbstractChannel, on_confirm: OnConfirm, on_return: OnReturn) -> None:
    """Have the channel pass on confirms and returns, instead of looking for futures of its own publishes."""
    own: Any = channel

    async def confirm(frame: commands.Basic.Ack | commands.Basic.Nack) -> None:
        on_confirm(frame.delivery_tag or 0, frame.multiple, isinstance(frame, commands.Basic.Ack))

    async def returned(frame: commands.Basic.Return) -> None:
        header = await own._get_frame()
        await own._read_content(frame, header)
        reason = Returned(frame.reply_code or 0, frame.reply_text or "")
        on_return(header.properties.message_id or "", frame.routing_key or "", reason)

    own._on_confirm_frame = confirm
    own._on_return_frame = returned


async def write(channel: AbstractChannel, payload: bytes) -> None:
    """Hand the bytes to the connection's writer; where this is cancelled, nothing was handed over."""
    connection: Any = channel.connection
    await connection.write_queue.put(ChannelFrame(payload=payload, should_close=False))


def write_at_once(channel: AbstractChannel, payload: bytes) -> None:
    """Write the bytes on a connection of our own without waiting, before what `write` has handed over.

    Nothing is written where the channel is about to close: the broker closes the connection over what comes
    on a channel that is not open.
    """
    connection: Any = channel.connection
    if not _is_closing(channel):
        connection.write_at_once(payload)


def abandon(channel: AbstractChannel) -> None:
    """Ask the broker to close the channel, and do not wait for its answer.

    `Channel.close` asks a second time where the answer is late, and RabbitMQ closes the connection over that.
    """
    if not _is_closing(channel):
        connection: Any = channel.connection
        with suppress(asyncio.QueueFull):
            connection.write_queue.put_nowait(_close(channel))
            _note_closing(channel)


async def close_within(channel: AbstractChannel, seconds: float) -> None:
    """Ask the broker to close the channel, and wait until it has; not longer than this."""
    connection: Any = channel.connection
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            if not _is_closing(channel):
                await connection.write_queue.put(_close(channel))
                _note_closing(channel)
            await asyncio.wait([channel.closing])


def _is_closing(channel: AbstractChannel) -> bool:
    return channel.is_closed or bool(getattr(channel, _CLOSE_EVENT).is_set())


def _note_closing(channel: AbstractChannel) -> None:
    getattr(channel, _CLOSE_EVENT).set()


def _close(channel: AbstractChannel) -> ChannelFrame:
    close = commands.Channel.Close(reply_code=200, reply_text="abandoned", class_id=0, method_id=0)
    return ChannelFrame.marshall(channel.number, [close])
