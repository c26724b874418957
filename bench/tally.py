"""When each message came, by the number that its body begins with; told when all have come."""

import os
import sys
import time

BODY_BYTES = 256
_DIGITS = 8


def body_of(number: int) -> bytes:
    """A body of the usual size that carries a number."""
    return f"{number:0{_DIGITS}}".encode().ljust(BODY_BYTES, b"x")


class Tally:
    """Counts up to what the environment says, and then prints a number and a moment a line."""

    def __init__(self) -> None:
        self._count = int(os.environ.get("BENCH_COUNT", "0"))
        self._moments: list[tuple[bytes, int]] = []

    def note(self, body: bytes) -> bool:
        """Note that a message has come; True with the last one."""
        self._moments.append((body[:_DIGITS], time.monotonic_ns()))
        if len(self._moments) != self._count:
            return False
        sys.stdout.writelines(f"{int(number)} {moment}\n" for number, moment in self._moments)
        sys.stdout.flush()
        return True


def read(lines: str) -> dict[int, int]:
    """The moments by number, in nanoseconds of the clock that all processes of a machine share."""
    return {int(number): int(moment) for number, moment in (line.split() for line in lines.splitlines())}
