"""`python -m bench.receiver`: take messages from the queue, and print when each came, as the sender does."""

import asyncio
import os
import sys
import time

import aiormq
from aiormq.abc import DeliveredMessage

from bench.harness import QUEUE
from outbox_core import loop

_PATIENCE_SECONDS = 60.0


async def main() -> None:
    count = int(os.environ["BENCH_COUNT"])
    received: list[tuple[str, int]] = []
    last = asyncio.Event()

    async def take(message: DeliveredMessage) -> None:
        moment = time.monotonic_ns()
        received.append((str(message.header.properties.message_id), moment))
        if len(received) == count:
            last.set()

    connection = await aiormq.connect(os.environ["OUTBOX_BROKER_URL"])
    channel = await connection.channel()
    await channel.basic_consume(QUEUE, take, no_ack=True)
    print("ready", flush=True)
    async with asyncio.timeout(count / 1_000 + _PATIENCE_SECONDS):
        await last.wait()
    sys.stdout.writelines(f"{message_id} {moment}\n" for message_id, moment in received)
    sys.stdout.flush()
    await connection.close()


if __name__ == "__main__":
    loop.run(main())
