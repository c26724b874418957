"""The fast path to the broker: batches, on connections and channels of aiormq whose internals are used.

Imported by `path_choice` alone, after it has checked that they are as this package knows them.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from aio_pika.abc import UnderlayConnection
from aiormq.abc import AbstractChannel, AbstractConnection
from aiormq.connection import TCPTransportFactory, TLSTransportFactory, TransportFactory
from yarl import URL

from outbox_core import aiormq_internals
from outbox_core.batch_consumer import BatchConsumer
from outbox_core.batch_publisher import BatchPublisher
from outbox_core.broker_handshake import OwnConnection
from outbox_core.consumer import OnMessage, OnUnreadable


class FastPath:
    """What `Broker` does in another way than the documented API allows."""

    def connection(self, url: URL, name: str) -> OwnConnection:
        """A connection that is to be opened, and then reads in bulk."""
        return _BulkConnection(url, name)

    async def channel(self, transport: AbstractConnection, *, confirms: bool) -> AbstractChannel:
        """A channel for a publisher or a consumer of this path."""
        # Its default of 10 frames would switch tasks once for every 10 confirms.
        return await transport.channel(publisher_confirms=confirms, frame_buffer_size=0)

    def publisher(self, channel: AbstractChannel, max_message_size: int | None) -> BatchPublisher:
        """A publisher on a channel with confirms, of any connection."""
        return BatchPublisher(channel, max_message_size)

    def consumer(
        self, channel: AbstractChannel, queue: str, on_message: OnMessage, on_unreadable: OnUnreadable | None
    ) -> BatchConsumer:
        """A consumer on a channel of a connection that is our own."""
        return BatchConsumer(channel, queue, on_message, on_unreadable)

    def abandon(self, channel: AbstractChannel) -> None:
        """Close a channel without waiting for the broker."""
        aiormq_internals.abandon(channel)

    def watch_blocked(self, transport: AbstractConnection, changed: Callable[[str | None], None]) -> None:
        """Have `changed` called with the reason of each alarm, and with None at its end."""
        aiormq_internals.watch_blocked(transport, changed)


class _BulkConnection(OwnConnection):
    """An aio-pika connection that reads in bulk, and whose socket can be cut off."""

    def __init__(self, url: URL, name: str) -> None:
        super().__init__(url, name)
        self._socket = _Socket()
        self.kwargs["transport_factory"] = self._socket

    async def connect(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - aio-pika's signature
        """Open it, as aio-pika does with a connection of aiormq's own."""
        self.transport = await _Underlay.connect(
            self.url, self._on_connection_close, timeout=timeout, **self.kwargs
        )
        await self._on_connected()

    async def close_within(self, seconds: float) -> None:
        """See `OwnConnection.close_within`.

        A broker that has blocked us reads nothing: waiting for the rest of a batch to be written never ends.
        """
        cut_off = asyncio.get_running_loop().call_later(seconds, self._socket.abort)
        try:
            await self.close()
        finally:
            cut_off.cancel()


class _Underlay(UnderlayConnection):
    """What aio-pika keeps of an aiormq connection, with the kind that reads in bulk."""

    @classmethod
    async def make_connection(
        cls,
        url: URL,
        timeout: float | None = None,  # noqa: ASYNC109 - aio-pika's signature
        **options: Any,
    ) -> AbstractConnection:
        connection = aiormq_internals.BulkConnection(url, **options)
        async with asyncio.timeout(timeout):
            await connection.connect()
        await connection.ready()
        return connection


class _Socket(TransportFactory):
    """Opens what aiormq would, and remembers it."""

    def __init__(self) -> None:
        self._writer: asyncio.StreamWriter | None = None

    async def create(self, url: URL, **options: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        factory = TLSTransportFactory() if url.scheme == "amqps" else TCPTransportFactory()
        reader, self._writer = await factory.create(url, **options)
        return reader, self._writer

    def abort(self) -> None:
        if self._writer:
            self._writer.transport.abort()
