"""What the broker takes at most: persistent messages with confirms into one quorum queue, and no database.

The faster of two publishers: RabbitMQ's PerfTest where Java is, and `python -m bench.ceiling`, that is
our own `BatchPublisher` fed from memory. On a busy machine either may be starved, and a relay that is faster
than a ceiling would only show that it was none.
"""

import asyncio
import os
import time
import uuid
from pathlib import Path

from bench import perf_test, processes
from bench.queue import EXCHANGE, TOPIC
from bench.stage import Drain, Stage
from bench.tally import BODY_BYTES
from outbox_core import loop
from outbox_core.broker import Broker
from outbox_core.publisher import Message

_LANES, _BATCH = 2, 500


async def measure(stage: Stage, jars: Path | None, count: int) -> Drain:
    """The rate of so many messages, after as many that warm the publisher up."""
    measured = [await _by_our_publisher(stage, count)]
    if jars is not None:
        measured.append(await _by_perf_test(stage, jars, count))
    print("    ceilings: " + ", ".join(f"{each.rate:,.0f}/s" for each in measured), flush=True)
    return max(measured, key=lambda each: each.rate)


async def _by_our_publisher(stage: Stage, count: int) -> Drain:
    await stage.queue.clear()
    with processes.running("bench.ceiling", {"OUTBOX_BROKER_URL": stage.broker_url}) as publisher:
        return await _watch(stage, publisher.pid, count)


async def _by_perf_test(stage: Stage, jars: Path, count: int) -> Drain:
    await stage.queue.clear()
    # A few more, so that the last ones are published at full speed too.
    total = count * 2 + 5_000
    with perf_test.publishing(
        jars, stage.broker_url, exchange=EXCHANGE, routing_key=TOPIC, size=BODY_BYTES, count=total
    ) as pid:
        return await _watch(stage, pid, count)


async def _watch(stage: Stage, pid: int, count: int) -> Drain:
    await stage.queue.arrival_of(count)
    return await stage.watch([pid], count)


async def main() -> None:
    async with Broker(os.environ["OUTBOX_BROKER_URL"], name="bench") as broker, asyncio.TaskGroup() as lanes:
        for _ in range(_LANES):
            lanes.create_task(_publish_forever(broker))


async def _publish_forever(broker: Broker) -> None:
    publisher = await broker.publisher()
    headers = {"x-outbox-tracking-ids": "[]", "x-outbox-routing-key": TOPIC, "x-outbox-attempt": 1}
    messages = [
        Message(TOPIC, b"x" * BODY_BYTES, str(uuid.uuid4()), int(time.time()), headers=headers)
        for _ in range(_BATCH)
    ]
    while True:
        await publisher.publish(EXCHANGE, messages, timeout=30)


if __name__ == "__main__":
    loop.run(main())
