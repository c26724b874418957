"""Which resources want to be looked at: each once, never by two at a time, and again where it failed."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from outbox_core.backoff import Backoff

Key = TypeVar("Key")

RETRY = Backoff(0.5, 240.0)
"""Between two tries of a resource that fails: five minutes at most, as a delay may be off by a quarter."""


class WorkQueue(Generic[Key]):
    """Keys that wait. One that is added while it is worked on is worked on once more."""

    def __init__(self, retry: Backoff = RETRY) -> None:
        self._retry = retry
        self._offered: asyncio.Queue[Key] = asyncio.Queue()
        self._wanted: set[Key] = set()
        self._active: set[Key] = set()
        self._failures: dict[Key, int] = {}
        self._timers: dict[Key, asyncio.TimerHandle] = {}

    @property
    def depth(self) -> int:
        """How many keys wait for a free hand."""
        return len(self._wanted)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is worked on and nothing waits, timers aside."""
        return not self._wanted and not self._active

    def add(self, key: Key) -> None:
        """Look at it as soon as a hand is free."""
        self._cancel_timer(key)
        if key in self._wanted:
            return
        self._wanted.add(key)
        if key not in self._active:
            self._offered.put_nowait(key)

    def add_after(self, key: Key, seconds: float) -> None:
        """Look at it that much later, or sooner where that was asked for already."""
        loop = asyncio.get_running_loop()
        due = loop.time() + seconds
        timer = self._timers.get(key)
        if key in self._wanted or (timer is not None and timer.when() <= due):
            return
        self._cancel_timer(key)
        self._timers[key] = loop.call_at(due, self.add, key)

    async def work(self, do: Callable[[Key], Awaitable[bool]]) -> None:
        """Be one of the hands, until cancelled. `do` says whether it succeeded."""
        while True:
            key = await self._offered.get()
            self._wanted.discard(key)
            self._active.add(key)
            try:
                succeeded = await do(key)
            finally:
                self._active.discard(key)
                if key in self._wanted:
                    self._offered.put_nowait(key)
            self._note(key, succeeded)

    def close(self) -> None:
        """Let go of the timers."""
        for key in list(self._timers):
            self._cancel_timer(key)

    def _note(self, key: Key, succeeded: bool) -> None:
        if succeeded:
            self._failures.pop(key, None)
            return
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        self.add_after(key, self._retry.delay(failures))

    def _cancel_timer(self, key: Key) -> None:
        if timer := self._timers.pop(key, None):
            timer.cancel()
