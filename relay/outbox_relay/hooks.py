"""The application's own functions, told of what happens to messages. Their failure changes nothing."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from outbox_core import hooks

_log = logging.getLogger("outbox.relay")


@dataclass(frozen=True, slots=True)
class Relayed:
    """A message, as a hook is told of it."""

    message_id: str
    """Its id on the wire."""
    routing_key: str
    """The key it was emitted with."""
    attempts: int
    """How often publishing it has failed."""
    error: str | None = None
    """What the last failure was."""


Hook: TypeAlias = Callable[[Relayed], Awaitable[None] | None]


@dataclass(frozen=True, slots=True)
class Hooks:
    """The hooks of a relay, each called after what it tells of was committed."""

    on_published: Hook | None = None
    """The broker has confirmed the message."""
    on_parked: Hook | None = None
    """The message was given up."""
    on_error: Hook | None = None
    """Publishing the message has failed; it is tried again."""


async def tell(hook: Hook | None, message: Relayed) -> None:
    """Call a hook, plain or async."""
    await hooks.tell(hook, message, _log)
