"""A broker as the operator enters it, and what stands between the two."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from ssl import SSLContext
from urllib.parse import unquote, urlsplit

from outbox_cli.local import Services
from outbox_operator.broker.access import BrokerAccess


def access_to(services: Services, rabbitmq_url: str) -> BrokerAccess:
    """The virtual host of this URL, as its administrator."""
    amqp, management = urlsplit(rabbitmq_url), urlsplit(services.rabbitmq.management_url)
    return BrokerAccess(
        host=amqp.hostname or "",
        port=amqp.port or 0,
        tls=False,
        vhost=unquote(amqp.path.removeprefix("/")),
        username=unquote(amqp.username or ""),
        password=unquote(amqp.password or ""),
        management_url=f"http://{management.hostname}:{management.port}",
    )


class Counter:
    """Counts calls to a broker."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def __call__(self, method: str, outcome: str) -> None:
        self.calls.append((method, outcome))

    def of(self, *methods: str) -> int:
        return sum(method in methods for method, _ in self.calls)


class Gate:
    """A proxy that can hold back the answers to GET, until they are let through."""

    def __init__(self, access: BrokerAccess) -> None:
        self._there = urlsplit(access.management_url)
        self._open = asyncio.Event()
        self._open.set()
        self.held = 0
        """How many answers came while it was closed."""
        self.access = access
        """The broker through this proxy."""

    def close(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    @asynccontextmanager
    async def serving(self, tls: SSLContext | None = None) -> AsyncIterator["Gate"]:
        async with serving(self._pass, tls) as url:
            self.access = replace(self.access, management_url=url)
            yield self

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection(self._there.hostname, self._there.port)
        is_get = False

        def asked(data: bytes) -> None:
            nonlocal is_get
            is_get = data.startswith(b"GET ")

        async def answered() -> None:
            if is_get and not self._open.is_set():
                self.held += 1
                await self._open.wait()

        async def out() -> None:
            while data := await reader.read(1 << 16):
                asked(data)
                there[1].write(data)

        async def back() -> None:
            while data := await there[0].read(1 << 16):
                await answered()
                writer.write(data)

        tasks = [asyncio.create_task(out()), asyncio.create_task(back())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            there[1].close()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


@asynccontextmanager
async def serving(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    tls: SSLContext | None = None,
) -> AsyncIterator[str]:
    """A server on a port of its own, whose URL this is; all of its connections end with the block."""
    connections: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        try:
            await serve(reader, writer)
        except (asyncio.CancelledError, EOFError, OSError):
            pass
        finally:
            connections.discard(task)
            writer.close()

    server = await asyncio.start_server(connected, "localhost", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"{'https' if tls else 'http'}://localhost:{port}"
    finally:
        server.close()
        for task in list(connections):
            task.cancel()
        if connections:
            await asyncio.wait(connections)
        await server.wait_closed()
