"""A Postgres and a RabbitMQ that a test may take away."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg

from outbox_cli.local import Services, runfolder
from tests.chaos.waiting import eventually
from tests.chaos.world import World
from tests.integration.administrator import management


@asynccontextmanager
async def world_on(services: Services, folder: Path) -> AsyncIterator[World]:
    """A database and a vhost on the services, without a queue."""
    name = f"test_{uuid4().hex}"
    connection = await asyncpg.connect(services.postgres.url)
    await connection.execute(f"CREATE DATABASE {name}")
    await connection.close()
    user = urlsplit(services.rabbitmq.url).username
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    await asyncio.to_thread(management, services, "PUT", f"vhosts/{name}")
    await asyncio.to_thread(management, services, "PUT", f"permissions/{name}/{user}", everything)
    urls = [
        urlunsplit(urlsplit(url)._replace(path=f"/{name}"))
        for url in (services.postgres.url, services.rabbitmq.url)
    ]
    async with World(services, urls[0], urls[1], folder) as world:
        yield world


async def on_disk(world: World, *queues: str) -> None:
    """Wait until the broker has written the queues down.

    RabbitMQ 3.10 writes the name of a new quorum queue half a second late; a crash before loses it.
    """

    async def are_on_disk() -> bool:
        text = await asyncio.to_thread(_names)
        return all(f"{world.vhost}_{queue}".encode() in text for queue in queues)

    await eventually(f"the queues {queues} are on the disk", are_on_disk)


def _names() -> bytes:
    records = {path: runfolder.read(path) for path in runfolder.parent_folder().iterdir()}
    runs = [path for path, record in records.items() if record and record.owner.pid == os.getpid()]
    names = [file for run in runs for file in run.glob("rabbitmq/data/*/quorum/*/names.dets")]
    return b"".join(file.read_bytes() for file in names)
