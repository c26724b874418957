"""The only way to an API server, which can be cut."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml


class Bridge:
    """Carries bytes to and from a server while it is open. Cut, it drops all of them and takes no more."""

    def __init__(self, host: str, port: int) -> None:
        self._to = (host, port)
        self._server: asyncio.Server | None = None
        self._port = 0
        self._crossings: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._cross, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        await self.drop()

    async def drop(self) -> None:
        """End what crosses now, and let others cross."""
        for crossing in list(self._crossings):
            crossing.cancel()
        if self._crossings:
            await asyncio.wait(self._crossings)

    async def _cross(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        crossing = asyncio.current_task()
        assert crossing is not None
        self._crossings.add(crossing)
        try:
            far, forth = await asyncio.open_connection(*self._to)
            try:
                await asyncio.gather(_carry(near, forth), _carry(far, back))
            finally:
                await _close(forth)
        except asyncio.CancelledError:
            # asyncio.start_server would report it.
            pass
        except OSError:
            pass
        finally:
            await _close(back)
            self._crossings.discard(crossing)


async def _carry(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(1 << 16):
        target.write(data)
        await target.drain()
    # Either side's end is the end.
    raise ConnectionResetError


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError, asyncio.CancelledError):
        await writer.wait_closed()


@asynccontextmanager
async def bridge(kubeconfig: Path) -> AsyncIterator[tuple[Bridge, Path]]:
    """A bridge to the server of a kubeconfig, and a kubeconfig that leads over it."""
    there = urlsplit(_read(kubeconfig)["clusters"][0]["cluster"]["server"])
    made = Bridge(there.hostname or "", there.port or 443)
    await made.open()
    try:
        yield made, _over(made, kubeconfig)
    finally:
        await made.cut()


def _read(kubeconfig: Path) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load(kubeconfig.read_text())
    return config


def _over(made: Bridge, kubeconfig: Path) -> Path:
    config = _read(kubeconfig)
    config["clusters"][0]["cluster"]["server"] = made.url
    file = kubeconfig.with_suffix(".bridge")
    file.write_text(yaml.safe_dump(config))
    return file
