"""`python -m bench.plain_consumer`: the consumer of aio-pika's own tutorial, the baseline of the worker."""

import asyncio
import os
import signal

import aio_pika

from bench.queue import NAME
from bench.tally import Tally


async def main() -> None:
    tally = Tally()

    async def handle(message: aio_pika.abc.AbstractIncomingMessage) -> None:
        async with message.process():
            tally.note(message.body)

    async with await aio_pika.connect_robust(os.environ["OUTBOX_BROKER_URL"]) as connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=int(os.environ["OUTBOX_PREFETCH_COUNT"]))
        queue = await channel.get_queue(NAME)
        await queue.consume(handle)
        await asyncio.Future()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    asyncio.run(main())
