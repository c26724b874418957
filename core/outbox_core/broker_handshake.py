"""Opening one connection, with a failure told in one line."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import aio_pika
from aio_pika.abc import UnderlayConnection
from aio_pika.exceptions import AMQPError
from aiormq.abc import AbstractConnection
from aiormq.connection import TCPTransportFactory, TLSTransportFactory, TransportFactory
from aiormq.exceptions import ProbableAuthenticationError
from yarl import URL

from outbox_core import aiormq_internals
from outbox_core.broker_address import BrokerAddress, describe
from outbox_core.broker_errors import (
    AuthenticationError,
    ConnectError,
    UnreachableError,
    VhostMissingError,
    broker_words,
)


class OwnConnection(aio_pika.Connection):
    """An aio-pika connection that reads in bulk, and whose socket can be cut off."""

    def __init__(self, url: URL, name: str) -> None:
        super().__init__(url, client_properties={"connection_name": name})
        self._socket = _Socket()
        self.kwargs["transport_factory"] = self._socket

    async def connect(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - aio-pika's signature
        """Open it, as aio-pika does with a connection of aiormq's own."""
        self.transport = await _Underlay.connect(
            self.url, self._on_connection_close, timeout=timeout, **self.kwargs
        )
        await self._on_connected()

    async def close_within(self, seconds: float) -> None:
        """Say goodbye to the broker, and cut off one that does not answer.

        One that has blocked us reads nothing: to wait until the rest of a batch is written would be for ever.
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


class _NoAnswerError(Exception):
    """A host cannot be reached, or is not a broker that is ready."""


async def open_connection(
    urls: Sequence[str], name: str, heartbeat_seconds: int, timeout_seconds: float
) -> tuple[OwnConnection, BrokerAddress]:
    """An open connection to the first of these hosts that accepts it, or a `ConnectError`.

    The next host is tried if one cannot be reached, and not if one refuses the user or the vhost.
    """
    failures: dict[BrokerAddress, str] = {}
    for url in urls:
        address = BrokerAddress.parse(url)
        try:
            return await _open_one(url, address, name, heartbeat_seconds, timeout_seconds), address
        except _NoAnswerError as error:
            failures[address] = str(error)
    raise UnreachableError(unreachable(failures))


async def _open_one(
    url: str, address: BrokerAddress, name: str, heartbeat_seconds: int, timeout_seconds: float
) -> OwnConnection:
    parsed = URL(url)
    if "heartbeat" not in parsed.query:
        parsed = parsed.update_query(heartbeat=heartbeat_seconds)
    connection = OwnConnection(parsed, name)
    try:
        # Around it and not handed to it: it waits without a limit for a connection that is blocked at once.
        async with asyncio.timeout(timeout_seconds):
            await connection.connect()
    except BaseException as error:
        await connection.close_within(0)
        if isinstance(error, TimeoutError):
            raise _NoAnswerError(f"no answer within {timeout_seconds:g} s; is it a broker?") from None
        if isinstance(error, AMQPError | OSError | RuntimeError):
            raise _explained(error, address) from None
        raise
    return connection


def _explained(error: Exception, address: BrokerAddress) -> ConnectError | _NoAnswerError:
    if isinstance(error, ProbableAuthenticationError):
        return AuthenticationError(f"{address}: the user or the password is wrong; correct the credentials")
    refusal = aiormq_internals.refusal(error) or ""
    if "not found" in refusal:
        return VhostMissingError(f"{address}: the vhost does not exist; create it or correct the URL")
    if "refused" in refusal:
        return AuthenticationError(f"{address}: the user may not use this vhost; give it permissions there")
    return _NoAnswerError(
        f"{refusal or broker_words(error)}; is it running, and can it be reached from here?"
    )


def unreachable(failures: Mapping[BrokerAddress, str]) -> str:
    """Why no host of a broker accepts a connection, each with its own reason."""
    if len(failures) == 1:
        [(address, why)] = failures.items()
        return f"{address}: {why}"
    reasons = " ".join(f"{address.host_port}: {why}" for address, why in failures.items())
    return f"{describe(list(failures))}: no host accepts a connection: {reasons}"
