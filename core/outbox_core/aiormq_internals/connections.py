"""Connections: whether the broker has blocked them, and why it did not open them."""

import traceback
from collections.abc import Awaitable, Callable
from typing import Any

from aiormq.abc import AbstractConnection
from pamqp import commands

_BLOCKED_HANDLER = "_Connection__handle_connection_blocked"
_UNBLOCKED_HANDLER = "_Connection__handle_connection_unblocked"
_UNBLOCKED_EVENT = "_Connection__connection_unblocked"


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
