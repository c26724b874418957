"""Which messages fail, and how often: told by their ids, so that every process knows. Pure."""

from uuid import UUID

DELAYS = (0.05, 0.1, 0.15)
"""The retries of the listeners in chaos tests, in seconds."""

ALWAYS = 1 + len(DELAYS)
"""As many failures as there are attempts."""


def failures_of(message_id: UUID) -> int:
    """How many of its first attempts fail: with the last digit 0 all, with 1, 2 or 3 that many, else none."""
    digit = message_id.int % 16
    if digit == 0:
        return ALWAYS
    return digit if digit < ALWAYS else 0


def always_fails(message_id: UUID) -> bool:
    """Whether no retry helps."""
    return failures_of(message_id) >= ALWAYS


def with_failures(message_id: UUID, count: int) -> UUID:
    """The same id but for its last digit, so that its first `count` attempts fail."""
    digit = {0: 15, ALWAYS: 0}.get(count, count)
    return UUID(int=message_id.int - message_id.int % 16 + digit)
