"""When an idle lane looks at the table again: on a notification, at a message's time, or by the clock."""

import asyncio
from collections import deque
from typing import Literal, TypeAlias

WakeReason: TypeAlias = Literal["notify", "timer", "poll", "more", "lost", "stop"]


class Wake:
    """Wakes one idle lane for each reason there is; a reason without an idle lane waits for one."""

    def __init__(self) -> None:
        self._sleepers: deque[asyncio.Future[WakeReason]] = deque()
        self._waiting: WakeReason | None = None
        self._is_stopping = False

    def up(self, reason: WakeReason) -> None:
        """There may be something to claim."""
        while self._sleepers:
            sleeper = self._sleepers.popleft()
            if not sleeper.done():
                sleeper.set_result(reason)
                return
        self._waiting = reason

    def up_all(self) -> None:
        """The relay is stopping: nobody sleeps any more."""
        self._is_stopping = True
        while self._sleepers:
            self.up("stop")

    def take(self) -> WakeReason | None:
        """A reason that waits for an idle lane, if there is one."""
        reason, self._waiting = self._waiting, None
        return reason

    async def sleep(self, timer_seconds: float | None, poll_seconds: float) -> WakeReason:
        """Wait until woken up, until a message is due, or for as long as may pass without a look."""
        if self._is_stopping:
            return "stop"
        if (reason := self.take()) is not None:
            return reason
        by_timer = timer_seconds is not None and timer_seconds < poll_seconds
        sleeper: asyncio.Future[WakeReason] = asyncio.get_running_loop().create_future()
        self._sleepers.append(sleeper)
        try:
            async with asyncio.timeout(timer_seconds if by_timer else poll_seconds):
                return await sleeper
        except TimeoutError:
            return "timer" if by_timer else "poll"
        finally:
            if sleeper in self._sleepers:
                self._sleepers.remove(sleeper)
