"""How fast dead letters go back to their listener, and that memory does not grow with their number.

The command is the process that people start, and its start counts. Beside it is the loop that one writes
where there is no such command: get, publish, ack, one message after the other.
"""

import asyncio
import json
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import aio_pika

from bench import processes
from bench.queue import NAME, TOPIC
from bench.ratio import rate
from bench.report import Chart, Figure, Report
from bench.sizes import Sizes
from bench.stage import Stage, progress
from bench.tally import body_of
from outbox.topology import dead_letter_queue
from outbox.wire import ATTEMPT, ROUTING_KEY
from outbox_core.broker import Broker
from outbox_core.publisher import CONFIRMED, Message
from outbox_worker.redelivery import Failure, dead_letter

_LETTERS = dead_letter_queue(NAME)
_BATCH = 1_000
_CONFIRM_SECONDS = 30.0
_LOOK_SECONDS = 0.01
_GOAL_RATE = 5_000
_GOAL_MEMORY = 1.2
_MEGABYTE = 1_000_000


@dataclass(frozen=True)
class Redrive:
    """What a redrive took."""

    rate: float
    """Messages a second."""
    megabytes: float = 0.0
    """The most that was resident."""


async def measure(stage: Stage, sizes: Sizes) -> Report:
    many: list[Redrive] = []
    few: list[Redrive] = []
    by_hand: list[Redrive] = []
    for number in range(sizes.rounds):
        progress(f"redriving {sizes.redriven:,}, round {number + 1} of {sizes.rounds}")
        many.append(await _redrive(stage, sizes.redriven))
        few.append(await _redrive(stage, sizes.redriven_few))
        by_hand.append(await _by_hand(stage, sizes.redriven_by_hand))
    ours, theirs = rate(many), rate(by_hand)
    # The most of any round: memory that grew in one of them has grown.
    peak, peak_of_few = (max(each.megabytes for each in runs) for runs in (many, few))
    return Report(
        [
            Figure(
                f"redrive {sizes.redriven:,} dead letters",
                f"{ours:,.0f}/s",
                f"{theirs:,.0f}/s get, publish, ack",
                ours,
                f"≥ {_GOAL_RATE:,}/s",
                ours >= _GOAL_RATE,
            ),
            Figure(
                "redrive's memory, how flat",
                f"{peak:.0f} MB with {sizes.redriven:,}",
                f"{peak_of_few:.0f} MB with {sizes.redriven_few:,}",
                peak / peak_of_few,
                f"≤ {_GOAL_MEMORY:g} ×",
                peak / peak_of_few <= _GOAL_MEMORY,
            ),
        ],
        [
            Chart(
                "dead letters redriven a second (median round)",
                "",
                {"get, publish, ack": [(0, theirs)], "outbox dlq redrive": [(0, ours)]},
            )
        ],
    )


async def _redrive(stage: Stage, count: int) -> Redrive:
    await _fill(stage, count)
    environment = {"OUTBOX_BROKER_URL": stage.broker_url}
    began, peak = time.monotonic(), 0
    with processes.running("outbox_cli", environment, "dlq", "redrive", NAME, "-o", "json") as process:
        while process.poll() is None:
            peak = max(peak, processes.peak_bytes(process.pid))
            await asyncio.sleep(_LOOK_SECONDS)
        seconds = time.monotonic() - began
        assert process.stdout is not None
        [told] = json.loads(process.stdout.read())
    assert (told["redriven"], await stage.queue.waiting()) == (count, count)
    run = Redrive(count / seconds, peak / _MEGABYTE)
    print(f"    outbox dlq redrive, {count:,}: {run.rate:,.0f}/s, {run.megabytes:.0f} MB", flush=True)
    return run


async def _by_hand(stage: Stage, count: int) -> Redrive:
    await _fill(stage, count)
    async with await aio_pika.connect(stage.broker_url) as connection:
        channel = await connection.channel(publisher_confirms=True)
        letters = await channel.get_queue(_LETTERS, ensure=False)
        began = time.monotonic()
        for _ in range(count):
            letter = await letters.get()
            assert letter is not None
            await channel.default_exchange.publish(_again(letter), NAME)
            await letter.ack()
        run = Redrive(count / (time.monotonic() - began))
    print(f"    get, publish, ack, {count:,}: {run.rate:,.0f}/s", flush=True)
    return run


def _again(letter: aio_pika.abc.AbstractIncomingMessage) -> aio_pika.Message:
    return aio_pika.Message(
        letter.body,
        message_id=letter.message_id,
        headers={ROUTING_KEY: TOPIC, ATTEMPT: 1},
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
    )


async def _fill(stage: Stage, count: int) -> None:
    """A queue anew, and so many dead letters as a worker leaves them."""
    await stage.queue.clear()
    headers = {ROUTING_KEY: TOPIC, ATTEMPT: 5}
    message = Message(TOPIC, b"", timestamp=int(time.time()), content_type="text/plain", headers=headers)
    failure = Failure(ConnectionError("the mail server is away"), 5, datetime.now(UTC))
    letter = replace(dead_letter(message, NAME, failure), routing_key=_LETTERS)
    async with Broker(stage.broker_url, name="bench") as broker:
        publisher = await broker.publisher()
        for first in range(0, count, _BATCH):
            numbers = range(first, min(first + _BATCH, count))
            batch = [replace(letter, body=body_of(n), message_id=f"message-{n}") for n in numbers]
            assert set(await publisher.publish("", batch, _CONFIRM_SECONDS)) == {CONFIRMED}
        await publisher.aclose()
