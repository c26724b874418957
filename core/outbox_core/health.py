"""Whether a process is alive and whether it is ready, as named checks that another thread asks."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TypeAlias

LIVENESS_LIMIT_SECONDS = 15.0
"""How old the event loop's last beat may be before the process counts as hanging."""

_BEAT_SECONDS = 1.0

_log = logging.getLogger("outbox.probes")

Check: TypeAlias = Callable[[], str | None]
"""What is wrong, or None. It is called from another thread, and has to answer at once."""


class Checks:
    """Named conditions, all of which must hold."""

    def __init__(self) -> None:
        self._checks: dict[str, Check] = {}

    def add(self, name: str, check: Check) -> None:
        """Ask this check too, or instead of an earlier one of that name."""
        self._checks[name] = check

    def failures(self) -> list[str]:
        """One line for each check that fails: `broker: not connected`."""
        reasons = {name: _reason(name, check) for name, check in list(self._checks.items())}
        return [f"{name}: {reason}" for name, reason in reasons.items() if reason is not None]


class Readiness(Checks):
    """Whether the process can do its work now: what `/readyz` says."""


class Liveness(Checks):
    """Whether the process has to be restarted: what `/livez` says.

    Its first check is the event loop's beat. `run()` has to run on that loop.
    """

    def __init__(self, limit_seconds: float = LIVENESS_LIMIT_SECONDS) -> None:
        super().__init__()
        self._limit_seconds = limit_seconds
        self._beaten = time.monotonic()
        self.add("event loop", self._stalled)

    def beat(self) -> None:
        """Tell that the event loop is turning."""
        self._beaten = time.monotonic()

    async def run(self) -> None:
        """Beat until cancelled."""
        while True:
            self.beat()
            await asyncio.sleep(_BEAT_SECONDS)

    def _stalled(self) -> str | None:
        age = time.monotonic() - self._beaten
        if age < self._limit_seconds:
            return None
        return f"last beat {age:.1f} s ago, the limit is {self._limit_seconds:g} s"


def _reason(name: str, check: Check) -> str | None:
    try:
        return check()
    except Exception as error:
        _log.exception("check failed", extra={"check": name})
        return f"the check itself failed with {type(error).__name__}; the log says why"
