"""Waiting for something to come true."""

import asyncio
import time
from collections.abc import Awaitable, Callable

DEADLINE_SECONDS = 60.0
POLL_SECONDS = 0.01


async def eventually(
    what: str, holds: Callable[[], Awaitable[bool]], *, seconds: float = DEADLINE_SECONDS
) -> float:
    """Poll until it holds, and tell how many seconds that took; fail with what was awaited otherwise."""
    started = time.monotonic()
    while not await holds():
        waited = time.monotonic() - started
        assert waited < seconds, f"still waiting after {seconds:g} s until {what}"
        await asyncio.sleep(POLL_SECONDS)
    return time.monotonic() - started
