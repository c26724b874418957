"""Opening one connection, with a failure told in one line."""

import asyncio
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import aio_pika
from aio_pika.exceptions import AMQPError
from aiormq.exceptions import ProbableAuthenticationError
from pamqp import commands
from yarl import URL

from outbox_core.broker_address import BrokerAddress, describe
from outbox_core.broker_errors import (
    AuthenticationError,
    ConnectError,
    UnreachableError,
    VhostMissingError,
    broker_words,
)

if TYPE_CHECKING:
    from outbox_core.fast_path import FastPath


class OwnConnection(aio_pika.Connection):
    """An aio-pika connection that nobody else uses, and that can be closed without waiting for the broker."""

    def __init__(self, url: URL, name: str) -> None:
        super().__init__(url, client_properties={"connection_name": name})

    async def close_within(self, seconds: float) -> None:
        """Say goodbye to the broker, and do not wait longer than this for its answer."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.close()


class _NoAnswerError(Exception):
    """A host cannot be reached, or is not a broker that is ready."""


async def open_connection(
    urls: Sequence[str],
    name: str,
    heartbeat_seconds: int,
    timeout_seconds: float,
    fast: "FastPath | None",
) -> tuple[OwnConnection, BrokerAddress]:
    """An open connection to the first of these hosts that accepts it, or a `ConnectError`.

    The next host is tried if one cannot be reached, and not if one refuses the user or the vhost.
    """
    failures: dict[BrokerAddress, str] = {}
    for url in urls:
        address = BrokerAddress.parse(url)
        parsed = URL(url)
        if "heartbeat" not in parsed.query:
            parsed = parsed.update_query(heartbeat=heartbeat_seconds)
        connection = fast.connection(parsed, name) if fast else OwnConnection(parsed, name)
        try:
            await _connect(connection, address, timeout_seconds)
        except _NoAnswerError as error:
            failures[address] = str(error)
        else:
            return connection, address
    raise UnreachableError(unreachable(failures))


async def _connect(connection: OwnConnection, address: BrokerAddress, timeout_seconds: float) -> None:
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


def _explained(error: Exception, address: BrokerAddress) -> ConnectError | _NoAnswerError:
    if isinstance(error, ProbableAuthenticationError):
        return AuthenticationError(f"{address}: the user or the password is wrong; correct the credentials")
    refusal = _refusal(error) or ""
    if "not found" in refusal:
        return VhostMissingError(f"{address}: the vhost does not exist; create it or correct the URL")
    if "refused" in refusal:
        return AuthenticationError(f"{address}: the user may not use this vhost; give it permissions there")
    return _NoAnswerError(
        f"{refusal or broker_words(error)}; is it running, and can it be reached from here?"
    )


def _refusal(error: BaseException) -> str | None:
    """The words with which the broker closed the connection while it was being opened.

    aiormq has them only in a local variable called `frame`.
    """
    for frame, _ in traceback.walk_tb(error.__traceback__):
        received = frame.f_locals.get("frame")
        if isinstance(received, commands.Connection.Close):
            return str(received.reply_text)
    return None


def unreachable(failures: Mapping[BrokerAddress, str]) -> str:
    """Why no host of a broker accepts a connection, each with its own reason."""
    if len(failures) == 1:
        [(address, why)] = failures.items()
        return f"{address}: {why}"
    reasons = " ".join(f"{address.host_port}: {why}" for address, why in failures.items())
    return f"{describe(list(failures))}: no host accepts a connection: {reasons}"
