"""An application on a machine whose clock is wrong: emits by relative times, and prints what it emitted.

Run as a program: its arguments are the database's URL and by how many seconds to shift the clock.
"""

import asyncio
import datetime
import json
import sys
import time

# Its C code wants the real class.
import asyncpg


def shift_the_clock(seconds: float) -> None:
    """Shift what Python code sees of the clock, before anybody has looked at it."""
    right, class_of_right = time.time, datetime.datetime

    class Wrong(class_of_right):  # type: ignore[misc, valid-type]
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:
            return class_of_right.fromtimestamp(time.time(), tz)

        @classmethod
        def utcnow(cls) -> datetime.datetime:
            return cls.now(datetime.UTC).replace(tzinfo=None)

    time.time = lambda: right() + seconds
    datetime.datetime = Wrong  # type: ignore[misc]


async def main(url: str) -> None:
    from outbox import Emitter, OutboxMessage

    delays_ms = [0, 1500, 2500]
    messages = [
        OutboxMessage("order.placed", {"delay_ms": delay_ms}, expiration=3600, eta=eta)
        for delay_ms in delays_ms
        for eta in (delay_ms or None, datetime.timedelta(milliseconds=delay_ms) if delay_ms else None)
        for _ in range(10)
    ]
    connection = await asyncpg.connect(url)
    async with connection.transaction():
        ids = await Emitter().bulk_emit(connection, messages)
    await connection.close()
    json.dump({"clock": time.time(), "ids": [str(known) for known in ids]}, sys.stdout)


if __name__ == "__main__":
    shift_the_clock(float(sys.argv[2]))
    asyncio.run(main(sys.argv[1]))
