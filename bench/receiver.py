"""`python -m bench.receiver`: take messages from the queue, and print when each came, as the sender does."""

import asyncio
import os

from bench.queue import NAME
from bench.tally import Tally
from outbox_core import loop
from outbox_core.broker import Broker
from outbox_core.consumer import Received

_PATIENCE_SECONDS = 60.0
_PREFETCH = 1_000


async def main() -> None:
    tally = Tally()
    all_came = asyncio.Event()

    def take(received: Received) -> None:
        consumer.ack(received)
        if tally.note(received.message.body):
            all_came.set()

    async with Broker(os.environ["OUTBOX_BROKER_URL"], name="bench") as broker:
        consumer = await broker.consumer(NAME, _PREFETCH, take)
        async with asyncio.timeout(int(os.environ["BENCH_COUNT"]) / 1_000 + _PATIENCE_SECONDS):
            await all_came.wait()
        await consumer.aclose()


if __name__ == "__main__":
    loop.run(main())
