"""When an idle lane looks at the table again: on a notification, at a message's time, or by the clock."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Literal, TypeAlias

WakeReason: TypeAlias = Literal[
    "notify", "timer", "poll", "flow", "more", "locked", "late", "help", "lost", "stop", "replan"
]
"""`flow`: messages flow, and the next were gathered; `locked`: what is due was locked by somebody; `late`:
another relay may not do its work; `help`: it has too much of it; `replan`: to decide anew how long to
sleep."""

_OF_THE_TABLE = frozenset[WakeReason]({"notify", "more", "locked", "late", "help"})
"""Reasons for which it is enough that somebody looks at the table."""

ON_THE_WAY_SECONDS = 0.05
"""How long a lane may be on its way to the table; one that takes longer has met an obstacle."""


class Wake:
    """Wakes one idle lane for each reason there is; a reason without an idle lane waits for one.

    A lane that was woken finds all that is committed until it looks at the table: what is heard of while it
    is on its way needs no second lane, which would find nothing.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sleepers: deque[asyncio.Future[WakeReason]] = deque()
        self._waiting: WakeReason | None = None
        self._expected_until = 0.0
        """Until when a lane that is on its way counts."""
        self._is_stopping = False

    def up(self, reason: WakeReason) -> None:
        """There may be something to claim."""
        if reason in _OF_THE_TABLE and self._clock() < self._expected_until:
            return
        while self._sleepers:
            sleeper = self._sleepers.popleft()
            if not sleeper.done():
                self._expect()
                sleeper.set_result(reason)
                return
        self._waiting = reason

    def arrived(self) -> None:
        """A lane looks at the table now: what is committed from here on it may miss."""
        self._expected_until = 0.0

    def up_all(self) -> None:
        """The relay is stopping: nobody sleeps any more."""
        self._is_stopping = True
        while self._sleepers:
            self.up("stop")

    def take(self) -> WakeReason | None:
        """A reason that waits for an idle lane, if there is one."""
        reason, self._waiting = self._waiting, None
        if reason is not None:
            self._expect()
        return reason

    def replan(self) -> None:
        """Let the lane that watches think again, without a look at the table."""
        for sleeper in self._sleepers:
            if not sleeper.done():
                sleeper.set_result("replan")

    async def sleep(self, timer_seconds: float | None, poll_seconds: float | None) -> WakeReason:
        """Wait until woken up, until a message is due, or for as long as may pass without a look."""
        if self._is_stopping:
            return "stop"
        if (reason := self.take()) is not None:
            return reason
        by_timer = timer_seconds is not None and (poll_seconds is None or timer_seconds < poll_seconds)
        sleeper: asyncio.Future[WakeReason] = asyncio.get_running_loop().create_future()
        self._sleepers.append(sleeper)
        try:
            async with asyncio.timeout(timer_seconds if by_timer else poll_seconds):
                return await sleeper
        except TimeoutError:
            if not sleeper.cancelled():
                # Both at once, and nobody else was told the reason.
                return sleeper.result()
            return "timer" if by_timer else "poll"
        finally:
            if sleeper in self._sleepers:
                self._sleepers.remove(sleeper)

    def _expect(self) -> None:
        self._expected_until = self._clock() + ON_THE_WAY_SECONDS
