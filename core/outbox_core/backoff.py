"""How long a message that could not be published waits for its next attempt."""

import random
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays that double up to a maximum, and are spread so that a batch does not come back as one."""

    initial_seconds: float = 0.5
    """The delay after the first failure."""
    maximum_seconds: float = 60.0
    """No delay is longer than this."""
    jitter: float = 0.25
    """How far a delay may be off, as a fraction of it, either way."""

    def __post_init__(self) -> None:
        if not 0 < self.initial_seconds <= self.maximum_seconds:
            raise ValueError(
                f"backoff: initial ({self.initial_seconds:g} s) must be more than 0 "
                f"and at most maximum ({self.maximum_seconds:g} s)"
            )
        if not 0 <= self.jitter < 1:
            raise ValueError(f"backoff: jitter {self.jitter:g} must be at least 0 and below 1")

    def delay(self, failures: int, spread: Callable[[], float] = random.random) -> float:
        """Seconds to wait after this many failures, at least one."""
        return self._step(failures) * (1 + self.jitter * (2 * spread() - 1))

    def waited(self, failures: int) -> float:
        """Seconds that a message has waited in all by the time it has failed that often, jitter aside."""
        return sum(self._step(number) for number in range(1, failures))

    def _step(self, failures: int) -> float:
        # The exponent is bounded, for a row may have failed often enough to overflow a float.
        return min(self.initial_seconds * 2.0 ** min(failures - 1, 60), self.maximum_seconds)
