"""A worker that kills itself at a step: `python -m tests.chaos.fatal_step WHEN STEP MODULE:NAME`.

The step is wrapped from outside. WHEN is `before` it, `during` it (what it sends is on its way, and nothing
has come back), `after` it, or `later`, when what it has sent has arrived for certain.
"""

import asyncio
import os
import re
import runpy
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import asyncpg

from outbox_core.batch_consumer import BatchConsumer
from outbox_core.batch_publisher import BatchPublisher
from outbox_worker.call import Caller
from outbox_worker.link import Link
from outbox_worker.subscriber import Subscriber

_LATER_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Step:
    """A method, or of a method that sends statements those that match."""

    owner: Any
    method: str
    statement: str | None = None
    is_async: bool = True


STEPS = {
    "delivery": Step(Subscriber, "_receive", is_async=False),
    "begin": Step(asyncpg.Connection, "execute", r"^BEGIN; .*INSERT INTO .*outbox_inbox"),
    "find": Step(asyncpg.Connection, "execute", r"^SET TRANSACTION [^;]+; SELECT .* FROM .*outbox_inbox"),
    "call": Step(Caller, "call"),
    "emit": Step(asyncpg.Connection, "execute", r"INTO .*outbox_table"),
    "write": Step(asyncpg.Connection, "execute", r"^INSERT INTO effects"),
    "commit": Step(asyncpg.Connection, "execute", r"; COMMIT$"),
    "rollback": Step(asyncpg.Connection, "execute", r"^ROLLBACK .*; ROLLBACK$"),
    "note": Step(asyncpg.Connection, "execute", r"^SET TRANSACTION [^;]+; INSERT INTO .*outbox_inbox"),
    "publish": Step(BatchPublisher, "publish"),
    "ack": Step(Link, "ack", is_async=False),
    "flush": Step(BatchConsumer, "_flush", is_async=False),
}
"""In the order in which a message meets them, if it does."""


def last_words(when: str, step: str) -> str:
    """What the worker says before it dies."""
    return f"killed {when} {step}"


def _arm(when: str, name: str) -> None:
    step = STEPS[name]
    original = getattr(step.owner, step.method)

    def die() -> None:
        os.write(1, f"{last_words(when, name)}\n".encode())
        os.kill(os.getpid(), signal.SIGKILL)

    def is_it(arguments: tuple[Any, ...]) -> bool:
        return step.statement is None or re.search(step.statement, arguments[1], re.DOTALL) is not None

    wrap = _asynchronous if step.is_async else _synchronous
    setattr(step.owner, step.method, wrap(original, when, is_it, die))


def _asynchronous(
    original: Any, when: str, is_it: Callable[[tuple[Any, ...]], bool], die: Callable[[], None]
) -> Any:
    async def wrapped(*arguments: Any, **options: Any) -> Any:
        if not is_it(arguments):
            return await original(*arguments, **options)
        if when == "before":
            die()
        doing = asyncio.ensure_future(original(*arguments, **options))
        if when == "during":
            # One turn of the loop to begin, and one in which what was written leaves.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            die()
        result = await doing
        if when == "later":
            await asyncio.sleep(_LATER_SECONDS)
        die()
        return result

    return wrapped


def _synchronous(
    original: Any, when: str, is_it: Callable[[tuple[Any, ...]], bool], die: Callable[[], None]
) -> Any:
    def wrapped(*arguments: Any, **options: Any) -> Any:
        if not is_it(arguments):
            return original(*arguments, **options)
        if when == "before":
            die()
        result = original(*arguments, **options)
        if when == "later":
            asyncio.get_running_loop().call_later(_LATER_SECONDS, die)
        else:
            die()
        return result

    return wrapped


if __name__ == "__main__":
    _arm(*sys.argv[1:3])
    sys.argv[1:] = sys.argv[3:]
    runpy.run_module("outbox_worker", run_name="__main__", alter_sys=True)
