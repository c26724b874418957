"""The `outbox` command as a person runs it, and dead letters as a worker leaves them."""

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import aio_pika
from typer.testing import CliRunner

from outbox import wire
from outbox.topology import Subscription, dead_letter_queue, topology
from outbox_cli.command import app
from outbox_core.broker import Broker
from outbox_core.consumer import Received
from outbox_core.publisher import CONFIRMED, Message
from outbox_worker.redelivery import Failure, dead_letter
from tests.integration.relaying import DEADLINE_SECONDS, until

QUEUE = "shop.mail"
_DELIVERIES = "x-delivery-count"


@dataclass(frozen=True)
class Told:
    """How a command ended, and what it said."""

    status: int
    output: str
    errors: str


def outbox(*arguments: str, answer: str | None = None, **environment: str) -> Told:
    """Run the command in this process, with what a person types."""
    return _invoked("outbox", arguments, answer, environment)


def kubectl_outbox(*arguments: str, answer: str | None = None, **environment: str) -> Told:
    """The same as a plugin of kubectl."""
    return _invoked("kubectl outbox", arguments, answer, environment)


def _invoked(
    program: str, arguments: Sequence[str], answer: str | None, environment: Mapping[str, str]
) -> Told:
    result = CliRunner().invoke(
        app, list(arguments), input=answer, env=_isolated(environment), prog_name=program
    )
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Told(result.exit_code, result.stdout, result.stderr)


async def outbox_beside(*arguments: str, answer: str | None = None, **environment: str) -> Told:
    """The same, beside the running loop."""
    return await asyncio.to_thread(outbox, *arguments, answer=answer, **environment)


@asynccontextmanager
async def started(
    *arguments: str,
    stdin: int = asyncio.subprocess.DEVNULL,
    stderr: int = asyncio.subprocess.PIPE,
    **environment: str,
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run the command in a process of its own, which is gone when the block ends."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "outbox_cli", *arguments),
        env={"PATH": "", **environment},
        stdin=stdin,
        stdout=asyncio.subprocess.PIPE,
        stderr=stderr,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@asynccontextmanager
async def asked(*arguments: str, **environment: str) -> AsyncIterator[Callable[[str], Awaitable[Told]]]:
    """Run the command up to its question; what is given answers it and returns how the command ended."""
    pipe = asyncio.subprocess.PIPE
    async with started(*arguments, stdin=pipe, stderr=pipe, **environment) as process:
        assert process.stderr is not None
        async with asyncio.timeout(DEADLINE_SECONDS):
            question = await process.stderr.readuntil(b"[y/N] ")

        async def answer(text: str) -> Told:
            async with asyncio.timeout(DEADLINE_SECONDS):
                output, errors = await process.communicate(f"{text}\n".encode())
            assert process.returncode is not None
            return Told(process.returncode, output.decode(), (question + errors).decode())

        yield answer


def _isolated(environment: Mapping[str, str]) -> dict[str, str | None]:
    named = ("DATABASE_URL", "BROKER_URL", "TABLE_NAME", "CHANNEL", "EXCHANGE_NAME")
    return {**{f"OUTBOX_{name}": None for name in named}, "KUBECONFIG": None, **environment}


def letter(
    number: int, error: Exception, *, failed: timedelta = timedelta(minutes=5), body: bytes | None = None
) -> Message:
    """Message number so-and-so as a worker dead-letters it, which failed so long ago."""
    message = Message(
        routing_key="user.created",
        body=body or f'{{"number": {number}}}'.encode(),
        message_id=f"message-{number}",
        timestamp=1_700_000_000,
        content_type="application/json",
        headers={wire.ROUTING_KEY: "user.created", wire.ATTEMPT: 3, "colour": "red"},
    )
    return dead_letter(message, QUEUE, Failure(error, 3, datetime.now(UTC) - failed))


class Shop:
    """A listener's queues on a broker."""

    def __init__(self, broker: Broker, channel: aio_pika.abc.AbstractChannel) -> None:
        self.broker = broker
        self._channel = channel

    async def fill(self, *letters: Message) -> None:
        """Put dead letters into the queue, in their order."""
        publisher = await self.broker.publisher()
        dlq = dead_letter_queue(QUEUE)
        messages = [replace(each, routing_key=dlq) for each in letters]
        assert set(await publisher.publish("", messages, DEADLINE_SECONDS)) == {CONFIRMED}
        await publisher.aclose()

    async def depths(self) -> tuple[int, int]:
        """How many messages are waiting for the listener, and how many dead letters."""
        return await self.broker.depth(QUEUE), await self.broker.depth(dead_letter_queue(QUEUE))

    async def broken_off(self, routing_key: str, body: bytes) -> None:
        """Have the broker itself dead-letter a message: a consumer rejects it."""
        exchange = await self._channel.get_exchange("shop")
        await exchange.publish(aio_pika.Message(body, message_id="broken"), routing_key)
        queue = await self._channel.get_queue(QUEUE, ensure=False)
        message = await queue.get()
        assert message is not None
        await message.reject(requeue=False)

        async def holds() -> bool:
            return await self.depths() == (0, 1)

        await until(holds, "the broker to dead-letter a message")

    async def purge(self, queue: str) -> None:
        """Remove what waits, and is not on its way to anybody."""
        await (await self._channel.get_queue(queue, ensure=False)).purge()

    async def delete(self, queue: str) -> None:
        await self._channel.queue_delete(queue)

    async def consumers(self, queue: str) -> int:
        """How many consume a queue."""
        declared = await self._channel.declare_queue(queue, passive=True)
        return declared.declaration_result.consumer_count or 0

    async def take(self, queue: str) -> list[Message]:
        """All messages of a queue, in their order, without what the broker itself notes in their headers."""
        depth = await self.broker.depth(queue)
        received: list[Received] = []

        def keep(each: Received) -> None:
            received.append(each)
            consumer.ack(each)

        consumer = await self.broker.consumer(queue, 1000, keep)
        await until(lambda: len(received) >= depth, f"{depth} messages of {queue}")
        await consumer.aclose()
        return [
            replace(each.message, headers={k: v for k, v in each.message.headers.items() if k != _DELIVERIES})
            for each in received
        ]

    async def ids(self, queue: str) -> Counter[str | None]:
        """How often each message is in a queue, which is empty afterwards."""
        return Counter(message.message_id for message in await self.take(queue))


@asynccontextmanager
async def shop_at(rabbitmq_url: str, subscription: Subscription | None = None) -> AsyncIterator[Shop]:
    """The queues of a listener, declared on this broker."""
    wanted = subscription or Subscription(QUEUE, ("user.*",), ())
    async with Broker(rabbitmq_url, name="test") as broker:
        await broker.declare(topology("shop", [wanted]))
        connection = await aio_pika.connect(rabbitmq_url)
        async with connection:
            yield Shop(broker, await connection.channel())
