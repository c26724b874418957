"""Processes that consume the queue: our worker, the plain consumer, and a bare receiver."""

import asyncio
import contextlib
import subprocess
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

from bench import processes, tally
from bench.stage import Stage

_PATIENCE_SECONDS = 300.0


@dataclass(frozen=True)
class Consumer:
    """What is started, and how."""

    module: str
    """Run as `python -m`."""
    arguments: tuple[str, ...] = ()
    """Its arguments."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Its settings."""


RECEIVER = Consumer("bench.receiver")


def worker(listener: str, prefetch: int, **settings: str) -> Consumer:
    """Our worker with one of the measured listeners."""
    environment = {
        "OUTBOX_PREFETCH_COUNT": str(prefetch),
        "OUTBOX_PROBE_PORT": "0",
        "OUTBOX_LOG_LEVEL": "WARNING",
        **{f"OUTBOX_{name.upper()}": value for name, value in settings.items()},
    }
    return Consumer("outbox_worker", (f"bench.listeners:{listener}",), environment)


def plain(prefetch: int) -> Consumer:
    """The consumer of aio-pika's tutorial."""
    return Consumer("bench.plain_consumer", (), {"OUTBOX_PREFETCH_COUNT": str(prefetch)})


@dataclass(frozen=True)
class Consuming:
    """A consumer at work."""

    process: subprocess.Popen[str]
    count: int

    async def moments(self) -> dict[int, int]:
        """When each message came, once all have."""
        async with asyncio.timeout(_PATIENCE_SECONDS):
            return tally.read(await asyncio.to_thread(self._lines))

    def _lines(self) -> str:
        assert self.process.stdout is not None
        return "".join(self.process.stdout.readline() for _ in range(self.count))


@contextlib.asynccontextmanager
async def consuming(stage: Stage, consumer: Consumer, count: int) -> AsyncIterator[Consuming]:
    """Start a consumer that tells when it has had so many messages, and wait until the broker knows it."""
    environment = {
        "OUTBOX_DATABASE_URL": stage.postgres_url,
        "OUTBOX_BROKER_URL": stage.broker_url,
        "BENCH_COUNT": str(count),
        **consumer.environment,
    }
    with processes.running(consumer.module, environment, *consumer.arguments) as process:
        async with asyncio.timeout(60):
            while not await stage.queue.consumers():
                assert process.poll() is None, f"{consumer.module} has ended"
                await asyncio.sleep(0.02)
        yield Consuming(process, count)
