"""The application's own functions, told of what happened to messages. Their failure changes nothing."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Handled:
    """A message, as a hook is told of it."""

    message_id: str | None
    """Its id on the wire, if it has one."""
    routing_key: str
    """The key it was emitted with."""
    queue: str
    """The queue it was consumed from."""
    attempt: int
    """Which attempt has ended, from 1."""
    error: BaseException | None = None
    """What the attempt failed with."""
    delay: timedelta | None = None
    """How long it waits for the next attempt, where there is one."""


Hook: TypeAlias = Callable[[Handled], Awaitable[None] | None]


@dataclass(frozen=True, slots=True)
class Hooks:
    """The hooks of a worker, each called after the message was settled."""

    on_success: Hook | None = None
    """The listener has returned."""
    on_retry: Hook | None = None
    """The listener has failed, and is called again later."""
    on_dead_letter: Hook | None = None
    """The message is in the dead-letter queue."""
