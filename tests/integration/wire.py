"""A proxy in front of a server that counts round trips: each time the client speaks after the server has."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from urllib.parse import urlsplit, urlunsplit


@dataclass
class RoundTrips:
    """How often the client has had to wait for an answer so far, over all connections."""

    count: int = 0
    url: str = ""
    sent: bytearray = field(default_factory=bytearray)
    """What clients have sent."""


@dataclass
class _Proxy:
    host: str
    port: int
    trips: RoundTrips
    delay_seconds: float
    address: str
    links: dict[asyncio.Task[None], asyncio.StreamWriter] = field(default_factory=dict)

    async def link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.links[task] = writer
        server_reader, server_writer = await asyncio.open_connection(self.host, self.port)
        server_spoke_last = True

        async def carry(
            source: asyncio.StreamReader, target: asyncio.StreamWriter, from_client: bool
        ) -> None:
            nonlocal server_spoke_last
            while data := await source.read(1 << 16):
                self.trips.count += from_client and server_spoke_last
                if from_client:
                    self.trips.sent += data
                server_spoke_last = not from_client
                if not from_client and self.delay_seconds:
                    await asyncio.sleep(self.delay_seconds)
                target.write(data)
                await target.drain()
            target.close()

        try:
            with contextlib.suppress(ConnectionError):
                await asyncio.gather(carry(reader, server_writer, True), carry(server_reader, writer, False))
        finally:
            for stream in (writer, server_writer):
                stream.close()
                with contextlib.suppress(ConnectionError):
                    await stream.wait_closed()

    async def serve(self, ready: "Future[tuple[int, asyncio.Event]]") -> None:
        stop = asyncio.Event()
        server = await asyncio.start_server(self.link, self.address, 0)
        ready.set_result((server.sockets[0].getsockname()[1], stop))
        await stop.wait()
        server.close()
        # As if the clients had left: asyncio shows the end of a link that is cancelled as an error.
        for client in self.links.values():
            client.transport.abort()
        await asyncio.gather(*self.links)


@contextlib.asynccontextmanager
async def counted(
    url: str, delay_seconds: float = 0, address: str = "127.0.0.1"
) -> AsyncIterator[RoundTrips]:
    """Put the proxy in front of `url`, on a thread of its own so that blocking drivers do not stop it.

    Each answer is `delay_seconds` late. The proxy listens at an address of this machine.
    """
    parts = urlsplit(url)
    proxy = _Proxy(parts.hostname or "", parts.port or 5432, RoundTrips(), delay_seconds, address)
    ready: Future[tuple[int, asyncio.Event]] = Future()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=lambda: loop.run_until_complete(proxy.serve(ready)))
    thread.start()
    port, stop = await asyncio.wrap_future(ready)
    credentials = parts.netloc.rpartition("@")[0]
    proxy.trips.url = urlunsplit(parts._replace(netloc=f"{credentials}@{address}:{port}"))
    try:
        yield proxy.trips
    finally:
        loop.call_soon_threadsafe(stop.set)
        await asyncio.to_thread(thread.join)
        loop.close()
