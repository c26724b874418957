"""The only way to a management API, which notes what is called and can be cut."""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

from tests.operator.site import Site

_CALL = re.compile(rb"(GET|PUT|POST|DELETE) /api/(\S+) HTTP/1\.1\r\n")


class BrokerBridge:
    """Carries bytes while it is open. Cut, it drops what crosses and takes no more."""

    def __init__(self, host: str, port: int) -> None:
        self.calls: list[tuple[str, str]] = []
        """The method and the path below `/api/` of each call, without its query."""
        self._to = (host, port)
        self._port = 0
        self._server: asyncio.Server | None = None
        self._crossings: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def count(self, method: str, path: str = "") -> int:
        """How many calls there were of this method, to what begins so."""
        return sum(called == method and to.startswith(path) for called, to in self.calls)

    def made(self) -> Counter[str]:
        """How often each exchange, queue and user was made."""
        return Counter(path for method, path in self.calls if method == "PUT")

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._cross, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for crossing in list(self._crossings):
            crossing.cancel()
        if self._crossings:
            await asyncio.wait(self._crossings)

    async def _cross(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        crossing = asyncio.current_task()
        assert crossing is not None
        self._crossings.add(crossing)
        # What asyncio.start_server would report: the cut, and either side's end.
        with suppress(asyncio.CancelledError, OSError):
            try:
                far, forth = await asyncio.open_connection(*self._to)
                try:
                    await asyncio.gather(self._carry(near, forth, is_call=True), self._carry(far, back))
                finally:
                    await _close(forth)
            finally:
                await _close(back)
        self._crossings.discard(crossing)

    async def _carry(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, is_call: bool = False
    ) -> None:
        while data := await source.read(1 << 16):
            if is_call:
                for method, path in _CALL.findall(data):
                    self.calls.append((method.decode(), path.decode().partition("?")[0]))
            target.write(data)
            await target.drain()
        raise ConnectionResetError


@asynccontextmanager
async def broker_bridge(site: Site, *, is_open: bool = True) -> AsyncIterator[BrokerBridge]:
    """A bridge to the broker of a site."""
    there = urlsplit(site.management_url)
    bridge = BrokerBridge(there.hostname or "", there.port or 0)
    await bridge.open()
    if not is_open:
        await bridge.cut()
    try:
        yield bridge
    finally:
        await bridge.cut()


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError, asyncio.CancelledError):
        await writer.wait_closed()
