"""A server that speaks just enough of Postgres to ask whoever connects for credentials, and keeps them."""

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

_SSL_REQUEST = 80877103
_ASK = {
    "cleartext": struct.pack("!ii", 8, 3),
    "md5": struct.pack("!ii", 12, 5) + b"salt",
    "kerberos": struct.pack("!ii", 8, 7),
}


@dataclass
class Collector:
    """What has arrived so far."""

    refusal: str
    """What it says to each connection."""
    port: int = 0
    startups: list[dict[str, str]] = field(default_factory=list)
    """What each connection said of itself."""
    secrets: list[bytes] = field(default_factory=list)
    """What each connection answered when it was asked for its password."""
    certificates: list[object] = field(default_factory=list)
    """Of each connection with TLS, the client's certificate; None without one."""


@asynccontextmanager
async def collector(
    ask: str = "cleartext", tls: ssl.SSLContext | None = None, refusal: str = "thank you"
) -> AsyncIterator[Collector]:
    """Such a server on loopback, until the block ends; it refuses all with these words."""
    found = Collector(refusal)
    async with asyncio.TaskGroup() as group:
        tasks: list[asyncio.Task[None]] = []

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            tasks.append(group.create_task(_talk(found, ask, tls, reader, writer)))

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        found.port = server.sockets[0].getsockname()[1]
        try:
            yield found
        finally:
            server.close()
            for task in tasks:
                task.cancel()


async def _talk(
    found: Collector,
    ask: str,
    tls: ssl.SSLContext | None,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    try:
        code, startup = await _startup(reader)
        if code == _SSL_REQUEST:
            writer.write(b"S" if tls else b"N")
            await writer.drain()
            if tls:
                await writer.start_tls(tls)
                found.certificates.append(writer.get_extra_info("peercert") or None)
            _, startup = await _startup(reader)
        fields = startup.decode().split("\0")
        found.startups.append(dict(zip(fields[::2], fields[1::2], strict=False)))
        writer.write(b"R" + _ASK[ask])
        await writer.drain()
        await reader.readexactly(1)
        (size,) = struct.unpack("!i", await reader.readexactly(4))
        found.secrets.append((await reader.readexactly(size - 4)).rstrip(b"\0"))
        words = found.refusal.encode("utf-8", "surrogateescape")
        error = b"SFATAL\0C28P01\0M" + words + b"\0\0"
        writer.write(b"E" + struct.pack("!i", len(error) + 4) + error)
        await writer.drain()
    except (asyncio.IncompleteReadError, OSError):
        # The client has heard enough.
        return
    finally:
        writer.close()


async def _startup(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    size, code = struct.unpack("!ii", await reader.readexactly(8))
    return code, await reader.readexactly(size - 8)
