"""`python -m bench.burst`: emit as fast as possible, 100 messages a transaction; tells when it began."""

import os
import time

import asyncpg

from bench.queue import TOPIC
from bench.tally import body_of
from outbox import Emitter, OutboxMessage
from outbox_core import loop

_TRANSACTION = 100


async def main() -> None:
    count = int(os.environ["BENCH_COUNT"])
    connection = await asyncpg.connect(os.environ["OUTBOX_DATABASE_URL"])
    emitter = Emitter()
    print(time.monotonic_ns(), flush=True)
    for first in range(0, count, _TRANSACTION):
        numbers = range(first, min(first + _TRANSACTION, count))
        async with connection.transaction():
            await emitter.bulk_emit(connection, [OutboxMessage(TOPIC, body_of(number)) for number in numbers])
    await connection.close()


if __name__ == "__main__":
    loop.run(main())
