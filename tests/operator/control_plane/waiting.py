"""Waiting for something to come true."""

import asyncio
import time
from collections.abc import Callable

DEADLINE_SECONDS = 60.0
POLL_SECONDS = 0.01


async def until(what: str, holds: Callable[[], object]) -> None:
    """Poll until it holds, and fail with what was awaited otherwise."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"still waiting after {DEADLINE_SECONDS:g} s until {what}"
        await asyncio.sleep(POLL_SECONDS)
