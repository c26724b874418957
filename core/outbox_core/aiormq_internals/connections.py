"""Connections: whether the broker has blocked them."""

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
