"""`python -c … JSON`, inside the cluster: remove objects of the broker, as somebody might do by hand."""

import asyncio
import json
import os
import sys
from typing import Any

import aio_pika

_SECONDS = 30


async def remove(url: str, unwanted: dict[str, Any]) -> None:
    connection = await aio_pika.connect(url, timeout=_SECONDS)
    async with connection:
        channel = await connection.channel()
        for exchange, queue, key, arguments in unwanted.get("bindings", ()):
            bound = await channel.get_queue(queue, ensure=False)
            await bound.unbind(exchange, key, arguments, timeout=_SECONDS)
        for queue in unwanted.get("queues", ()):
            await channel.queue_delete(queue, timeout=_SECONDS)
        for exchange in unwanted.get("exchanges", ()):
            await channel.exchange_delete(exchange, timeout=_SECONDS)


if __name__ == "__main__":
    asyncio.run(remove(os.environ["BROKER_URL"], json.loads(sys.argv[1])))
