"""A proxy in front of Postgres that counts round trips: each time the client speaks after the server has."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from urllib.parse import urlsplit, urlunsplit


class RoundTrips:
    """How often the client has had to wait for an answer so far, over all connections."""

    def __init__(self) -> None:
        self.count = 0
        self.url = ""


class _Link:
    def __init__(self, trips: RoundTrips) -> None:
        self._trips = trips
        self._server_spoke_last = True

    async def carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, from_client: bool
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                if from_client and self._server_spoke_last:
                    self._trips.count += 1
                self._server_spoke_last = not from_client
                writer.write(data)
                await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def counted(url: str) -> AsyncIterator[RoundTrips]:
    """Put the proxy in front of `url`, on a thread of its own so that blocking drivers do not stop it."""
    trips = RoundTrips()
    parts = urlsplit(url)
    ready = threading.Event()
    loop = asyncio.new_event_loop()

    async def link(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection(parts.hostname, parts.port)
        pair = _Link(trips)
        await asyncio.gather(
            pair.carry(reader, server_writer, from_client=True),
            pair.carry(server_reader, writer, from_client=False),
        )

    async def serve() -> asyncio.Server:
        server = await asyncio.start_server(link, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        credentials = parts.netloc.rpartition("@")[0]
        trips.url = urlunsplit(parts._replace(netloc=f"{credentials}@127.0.0.1:{port}"))
        loop.call_soon(ready.set)
        return server

    def run() -> None:
        server = loop.run_until_complete(serve())
        loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(loop):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                loop.run_until_complete(task)
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    await asyncio.to_thread(ready.wait)
    try:
        yield trips
    finally:
        loop.call_soon_threadsafe(loop.stop)
        await asyncio.to_thread(thread.join)
