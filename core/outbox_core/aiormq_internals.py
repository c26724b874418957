"""All that we know of aiormq beyond its documented API, and nothing else knows it.

aio-pika publishes one message a call, with a future, a task and a timer for each. To publish a batch in one
write we use aiormq's own channel and rely on this, which `test_what_the_batch_publisher_relies_on` pins:

- A channel looks up `_on_confirm_frame` and `_on_return_frame` on itself and awaits them for each ack or nack
  and for each return, one after the other in the order of arrival. (aiormq 6 looked them up only once.)
- After the frame of a return, `_get_frame` gives its content header and `_read_content` the rest.
- What is put into a connection's `write_queue` as a `ChannelFrame` is written as it is, in this order;
  without a `drain_future` the writer does not wait for the socket: heartbeats pass while we are blocked.
- `connection_tune.frame_max` is what was agreed with the broker.
- A connection looks up its (mangled) handlers of `connection.blocked` and `unblocked` on itself, and its
  (mangled) event is set while it is not blocked.
- Where the broker refuses the vhost, its words are only in a local variable called `frame`.
"""

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from aiormq.abc import AbstractChannel, AbstractConnection, ChannelFrame
from pamqp import commands
from pamqp.header import ContentHeader

_BLOCKED_HANDLER = "_Connection__handle_connection_blocked"
_UNBLOCKED_HANDLER = "_Connection__handle_connection_unblocked"
_UNBLOCKED_EVENT = "_Connection__connection_unblocked"

OnConfirm = Callable[[commands.Basic.Ack | commands.Basic.Nack], None]
OnReturn = Callable[[commands.Basic.Return, ContentHeader], None]


def frame_max(channel: AbstractChannel) -> int:
    """The largest frame that the broker takes."""
    connection: Any = channel.connection
    return int(connection.connection_tune.frame_max)


def take_over_confirms(channel: AbstractChannel, on_confirm: OnConfirm, on_return: OnReturn) -> None:
    """Have the channel pass on confirms and returns, instead of looking for futures of its own publishes."""
    own: Any = channel

    async def confirm(frame: commands.Basic.Ack | commands.Basic.Nack) -> None:
        on_confirm(frame)

    async def returned(frame: commands.Basic.Return) -> None:
        header = await own._get_frame()
        await own._read_content(frame, header)
        on_return(frame, header)

    own._on_confirm_frame = confirm
    own._on_return_frame = returned


async def write(channel: AbstractChannel, payload: bytes) -> None:
    """Hand the bytes to the connection's writer; where this is cancelled, nothing was handed over."""
    connection: Any = channel.connection
    await connection.write_queue.put(ChannelFrame(payload=payload, should_close=False))


def abandon(channel: AbstractChannel) -> None:
    """Ask the broker to close the channel, and do not wait for its answer.

    `Channel.close` asks a second time where the answer is late, and RabbitMQ closes the connection over that.
    """
    if channel.is_closed:
        return
    connection: Any = channel.connection
    close = commands.Channel.Close(reply_code=200, reply_text="abandoned", class_id=0, method_id=0)
    with suppress(asyncio.QueueFull):
        connection.write_queue.put_nowait(ChannelFrame.marshall(channel.number, [close]))


def watch_blocked(connection: AbstractConnection, changed: Callable[[str | None], None]) -> None:
    """Call `changed` with the broker's reason whenever it blocks the connection, with None when it unblocks.

    At once too, where the connection is blocked already.
    """
    own: Any = connection
    on_blocked: Callable[[Any], Awaitable[None]] = getattr(own, _BLOCKED_HANDLER)
    on_unblocked: Callable[[Any], Awaitable[None]] = getattr(own, _UNBLOCKED_HANDLER)

    async def blocked(frame: commands.Connection.Blocked) -> None:
        await on_blocked(frame)
        changed(frame.reason or "no reason given")

    async def unblocked(frame: commands.Connection.Unblocked) -> None:
        await on_unblocked(frame)
        changed(None)

    setattr(own, _BLOCKED_HANDLER, blocked)
    setattr(own, _UNBLOCKED_HANDLER, unblocked)
    if not getattr(own, _UNBLOCKED_EVENT).is_set():
        changed("before we came")


def refusal(error: BaseException) -> str | None:
    """The words with which the broker closed the connection while it was being opened."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        received = frame.f_locals.get("frame")
        if isinstance(received, commands.Connection.Close):
            return str(received.reply_text)
    return None
