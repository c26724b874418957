"""`python -c … QUEUE`, inside the cluster: move dead letters back to the queue that they come from.

Each is confirmed by its queue before it leaves the dead-letter queue: a crash in between repeats it.
"""

import asyncio
import os
import sys

import aio_pika

_SECONDS = 30
_BROKERS = ("x-death", "x-first-death-", "x-last-death-", "x-delivery-count")


async def redrive(url: str, queue: str) -> int:
    connection = await aio_pika.connect(url, timeout=_SECONDS)
    async with connection:
        channel = await connection.channel(publisher_confirms=True)
        letters = await channel.get_queue(f"{queue}.dlq", ensure=False)
        moved = 0
        while (letter := await letters.get(fail=False, timeout=_SECONDS)) is not None:
            copy = aio_pika.Message(
                letter.body,
                # With the broker's own notes it would take the message for one that goes in circles.
                headers={
                    name: value for name, value in letter.headers.items() if not name.startswith(_BROKERS)
                },
                message_id=letter.message_id,
                timestamp=letter.timestamp,
                content_type=letter.content_type,
                delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
            )
            await channel.default_exchange.publish(copy, queue, mandatory=True, timeout=_SECONDS)
            await letter.ack()
            moved += 1
    return moved


if __name__ == "__main__":
    print(asyncio.run(redrive(os.environ["BROKER_URL"], sys.argv[1])))  # noqa: T201 - what was asked for
