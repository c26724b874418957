"""Which resources want to be looked at: each once, never by two at a time, and again where it failed.

Those of one group, a namespace, take turns with those of others, and hold a part of the workers at most.
"""

import asyncio
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic

from outbox_core.backoff import Backoff
from outbox_operator.reconciling.turns import Key, Turns

RETRY = Backoff(0.5, 240.0)
"""Between two tries of a resource that fails: five minutes at most, as a delay may be off by a quarter."""


class WorkQueue(Generic[Key]):
    """Keys that wait. One that is added while it is worked on is worked on once more."""

    def __init__(
        self,
        retry: Backoff = RETRY,
        *,
        group_of: Callable[[Key], str] = lambda key: "",  # noqa: ARG005 - all are of one group
        most_of_a_group: int = sys.maxsize,
    ) -> None:
        self._retry = retry
        self._turns = Turns(group_of, most_of_a_group)
        self._idle: deque[asyncio.Future[None]] = deque()
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
            self._offer(key)

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
            key = await self._next()
            self._wanted.discard(key)
            self._active.add(key)
            try:
                succeeded = await do(key)
            finally:
                self._active.discard(key)
                self._turns.done(key)
                if key in self._wanted:
                    self._offer(key)
            self._note(key, succeeded)

    def _offer(self, key: Key) -> None:
        self._turns.add(key)
        while self._idle:
            hand = self._idle.popleft()
            if not hand.done():
                hand.set_result(None)
                break

    async def _next(self) -> Key:
        while (key := self._turns.take()) is None:
            # Nobody waits for a key that may be taken: whoever is done with one asks for the next.
            hand = asyncio.get_running_loop().create_future()
            self._idle.append(hand)
            await hand
        return key

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
