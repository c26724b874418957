"""The application's own functions, told of what happens to messages. Their failure changes nothing."""

import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar


class Told(Protocol):
    """What a hook is told of."""

    @property
    def message_id(self) -> str | None:
        """The message's id on the wire."""


T = TypeVar("T", bound=Told)


async def tell(hook: Callable[[T], Awaitable[None] | None] | None, message: T, log: logging.Logger) -> None:
    """Call a hook, plain or async."""
    if hook is None:
        return
    try:
        answer = hook(message)
        if inspect.isawaitable(answer):
            await answer
    except Exception:
        name = getattr(hook, "__qualname__", repr(hook))
        log.exception("hook %s failed for message %s; nothing changes by it", name, message.message_id)
