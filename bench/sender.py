"""`python -m bench.sender`: emit at a steady pace, each message in a transaction of its own.

Prints the number of each message with the time at which its commit returned, by the clock that all processes
of a machine share.
"""

import asyncio
import os
import time

import asyncpg

from bench.queue import TOPIC
from bench.tally import body_of
from outbox import Emitter
from outbox_core import loop

_CONNECTIONS = 8
_PER_SECOND = 1_000


async def main() -> None:
    count = int(os.environ["BENCH_COUNT"])
    committed: list[tuple[int, int]] = []
    due = iter(range(count))

    async def send(connection: asyncpg.Connection, began: float) -> None:
        emitter = Emitter()
        for number in due:
            await asyncio.sleep(began + number / _PER_SECOND - time.monotonic())
            async with connection.transaction():
                await emitter.emit(connection, TOPIC, body_of(number))
            committed.append((number, time.monotonic_ns()))

    connections = [await asyncpg.connect(os.environ["OUTBOX_DATABASE_URL"]) for _ in range(_CONNECTIONS)]
    began = time.monotonic()
    await asyncio.gather(*(send(connection, began) for connection in connections))
    for number, moment in committed:
        print(number, moment)


if __name__ == "__main__":
    loop.run(main())
