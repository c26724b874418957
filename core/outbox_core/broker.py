"""One connection to RabbitMQ that comes back by itself.

Not aio-pika's `connect_robust`, which restores channels behind their users' backs and can hang while it does:
a connection lost here is lost with all of its channels, and whoever had one asks for another.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

import aio_pika
from aio_pika.abc import AbstractConnection, AbstractRobustConnection
from aiormq.abc import AbstractChannel
from aiormq.abc import AbstractConnection as Transport
from aiormq.exceptions import AMQPError

from outbox.topology import Topology
from outbox_core.broker_address import BrokerAddress, broker_urls
from outbox_core.broker_errors import (
    BrokerLostError,
    ConnectError,
    UnreachableError,
    broker_words,
    lost_consumer,
)
from outbox_core.broker_handshake import OwnConnection, open_connection
from outbox_core.consumer import Consumer, OnMessage, OnUnreadable
from outbox_core.path_choice import fast_path
from outbox_core.plain_consumer import PlainConsumer
from outbox_core.plain_publisher import PlainPublisher
from outbox_core.plaintext import plain_hosts
from outbox_core.provisioning import Provisioning
from outbox_core.publisher import Publisher

if TYPE_CHECKING:
    from outbox_core.batch_consumer import BatchConsumer

_FIRST_DELAY_SECONDS = 0.1
_LONGEST_DELAY_SECONDS = 1.0
_CALL_SECONDS = 10.0
_GOODBYE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class BrokerState:
    """What is known of the connection."""

    is_connected: bool
    """Whether there is one."""
    blocked_reason: str | None = None
    """Why the broker takes no messages at the moment (an alarm: memory or disk), or None where it does."""
    problem: str | None = None
    """Why there is no connection, in one line; None while there is one."""


@dataclass(frozen=True, slots=True)
class Aside:
    """A connection on which nothing is sent any more, and answers are still awaited."""

    connection: OwnConnection

    async def aclose(self) -> None:
        """Close it; the broker may not be reading from it, and is not waited for."""
        await self.connection.close_within(0)


class Broker:
    """RabbitMQ, through one connection: of our own, or one that the user gives and keeps."""

    def __init__(
        self,
        url: str | None = None,
        *,
        connection: AbstractConnection | None = None,
        name: str,
        heartbeat_seconds: int = 10,
        connect_timeout_seconds: float = 5.0,
        on_change: Callable[[BrokerState], None] | None = None,
    ) -> None:
        """Describe the broker; `name` is what its list of connections shows us as.

        A URL may list several hosts: they are tried in random order.
        """
        if (url is None) == (connection is None):
            raise TypeError("Broker: give either a URL or a connection")
        self._urls = broker_urls(url if url is not None else str(getattr(connection, "url", "")))
        self.address = BrokerAddress.parse(self._urls[0])
        """The host of the connection; before there was one, the first that the URL lists."""
        self.state = BrokerState(is_connected=False)
        self._given = connection
        self._name = name
        self._heartbeat_seconds = heartbeat_seconds
        self._connect_timeout_seconds = connect_timeout_seconds
        self._on_change = on_change
        self._fast = fast_path()
        self._own: OwnConnection | None = None
        self._connection: AbstractConnection | None = None
        self._transport: Transport | None = None
        self._was_connected = False
        self._is_closed = False
        self._connecting = asyncio.Lock()
        self._lost = asyncio.Event()
        self._ready = asyncio.Event()

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection."""
        return self.state.is_connected

    @property
    def plain_hosts(self) -> tuple[str, ...]:
        """The hosts of its URL that are entered over a network without TLS."""
        return plain_hosts(self._urls)

    @property
    def is_blocked(self) -> bool:
        """Whether the broker takes no messages because of an alarm."""
        return self.state.blocked_reason is not None

    @property
    def blocked_reason(self) -> str | None:
        """The alarm, in the broker's words."""
        return self.state.blocked_reason

    async def __aenter__(self) -> Self:
        await self.connect_once()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def run(self) -> None:
        """Stay connected, until cancelled or closed.

        Raises `BrokerLostError` only where the connection was given to us, is closed, and cannot come back.
        """
        while not self._is_closed:
            await self._reconnect()
            await self._lost.wait()
            # A broker that drops us at once must not be hammered.
            await _pause(_FIRST_DELAY_SECONDS)

    async def connect_once(self) -> None:
        """Connect if there is no connection, or raise a `ConnectError` that says in one line why not."""
        async with self._connecting:
            if not self.is_connected:
                self._attach(self._given_if_open() if self._given else await self._opened())

    async def aclose(self) -> None:
        """Close the connection, unless it was given to us, and end `run`."""
        self._is_closed = True
        self._transport, is_blocked = None, self.is_blocked
        self._change(BrokerState(is_connected=False, problem=f"{self.address}: closed by us"))
        if self._own:
            await self._own.close_within(0 if is_blocked else _GOODBYE_SECONDS)

    async def wait_ready(self) -> None:
        """Wait until there is a connection on which the broker takes messages."""
        await self._ready.wait()

    async def publisher(self, *, plain: bool = False, max_message_size: int | None = None) -> Publisher:
        """A channel of its own to publish on; close it with `aclose`.

        `plain` takes the slower one that uses the documented API alone, as does a changed aiormq. A body of
        more than `max_message_size` bytes is not sent but `Unencodable`.
        """
        if plain or self._fast is None:
            channel = await self._plain_channel(confirms=True)
            transport = (await channel.get_underlay_channel()).connection
            return PlainPublisher(channel, transport, max_message_size)
        return self._fast.publisher(await self._channel(confirms=True), max_message_size)

    def carries(self, publisher: Publisher) -> bool:
        """Whether the publisher's channel is on the current connection."""
        return self._transport is not None and publisher.transport is self._transport

    async def set_aside(self, publisher: Publisher) -> Aside | None:
        """Connect anew, and keep the publisher's connection open for the answers that are awaited on it.

        A queue that does not answer makes RabbitMQ stop reading from the connection that publishes to it.
        Returns None if the publisher has another connection than the current one, or the connection was
        given to us: there is no second one. Raises a `ConnectError`.
        """
        async with self._connecting:
            previous = self._own
            if previous is None or not self.carries(publisher):
                return None
            self._own = await self._open()
            self._attach(self._own)
            return Aside(previous)

    async def consumer(
        self,
        queue: str,
        prefetch_count: int,
        on_message: OnMessage,
        *,
        on_unreadable: OnUnreadable | None = None,
        plain: bool = False,
    ) -> Consumer:
        """A channel of its own on which the messages of `queue` arrive; close it with `aclose`.

        At most `prefetch_count` are unsettled at a time. `plain` takes the slower one that uses the
        documented API alone, as do a given connection and a changed aiormq. Raises `QueueMissingError`,
        `AccessRefusedError`, or another `BrokerLostError`.

        A message that cannot be read is dead-lettered, and with `on_unreadable` left unsettled and told: it
        stays in its queue. The plain one never asks, since aiormq reads for it.
        """
        consumer: PlainConsumer | BatchConsumer
        if plain or self._given or self._fast is None:
            consumer = PlainConsumer(await self._plain_channel(confirms=False), queue, on_message)
        else:
            consumer = self._fast.consumer(await self._channel(), queue, on_message, on_unreadable)
        try:
            await consumer.start(prefetch_count)
        except BaseException:
            await consumer.aclose()
            raise
        return consumer

    async def declare(self, topology: Topology) -> None:
        """Make all of `topology` that is not there, in its order.

        Raises `TopologyConflictError` where something else has a name in it, and `TopologyMissingError` where
        something is missing that the user may not make.
        """
        provisioning = Provisioning(self._channel, self._close_channel)
        try:
            await provisioning.declare(topology)
        finally:
            await provisioning.aclose()

    async def check(self, topology: Topology) -> None:
        """Raise a `TopologyMissingError` that names all that is missing, without the right to make it."""
        provisioning = Provisioning(self._channel, self._close_channel)
        try:
            await provisioning.check(topology)
        finally:
            await provisioning.aclose()

    async def private_queue(self, name: str, exchange: str, binding_keys: Sequence[str], most: int) -> None:
        """Make a queue that gets a copy of what `exchange` routes, and ends with its consumer or connection.

        It holds the last `most` messages, and nobody else may consume it. Raises `ExchangeMissingError`,
        `AccessRefusedError`, or another `BrokerLostError`.
        """
        provisioning = Provisioning(self._channel, self._close_channel)
        try:
            await provisioning.private_queue(name, exchange, binding_keys, most)
        finally:
            await provisioning.aclose()

    async def depth(self, queue: str) -> int:
        """How many messages of `queue` are waiting; a `QueueMissingError` where it does not exist."""
        return (await self.counts(queue))[0]

    async def counts(self, queue: str) -> tuple[int, int]:
        """How many messages of `queue` are waiting, and how many consumers it has; errors as of `depth`."""
        channel = await self._channel()
        try:
            declared = await channel.queue_declare(queue, passive=True, timeout=_CALL_SECONDS)
        except (AMQPError, RuntimeError, OSError) as error:
            raise lost_consumer(error, queue) from None
        finally:
            await self._close_channel(channel)
        return declared.message_count or 0, declared.consumer_count or 0

    async def _reconnect(self) -> None:
        delay_seconds = _FIRST_DELAY_SECONDS
        while not self.is_connected and not self._is_closed:
            try:
                await self.connect_once()
            except ConnectError as error:
                self._change(BrokerState(is_connected=False, problem=str(error)))
                await _pause(delay_seconds)
                delay_seconds = min(delay_seconds * 2, _LONGEST_DELAY_SECONDS)

    async def _opened(self) -> AbstractConnection:
        if self._own:
            await self._own.close_within(0)
        self._own = await self._open()
        if self._is_closed:
            await self._own.close_within(0)
        return self._own

    async def _open(self) -> OwnConnection:
        urls = random.sample(self._urls, len(self._urls))
        if self._was_connected:
            # The host of the last connection is likely the one that is away.
            urls.sort(key=lambda url: BrokerAddress.parse(url) == self.address)
        connection, self.address = await open_connection(
            urls, self._name, self._heartbeat_seconds, self._connect_timeout_seconds, self._fast
        )
        self._was_connected = True
        return connection

    def _given_if_open(self) -> AbstractConnection:
        given = self._given
        assert given is not None  # noqa: S101 - only called with one
        if given.transport and given.connected.is_set():
            return given
        if isinstance(given, AbstractRobustConnection) and not given.is_closed:
            raise UnreachableError(f"{self.address}: the connection that was given has not come back yet")
        raise BrokerLostError(
            f"{self.address}: the connection that was given is closed; "
            "give one of connect_robust, or a URL, to have it come back"
        )

    def _attach(self, connection: AbstractConnection) -> None:
        if self._is_closed or connection.transport is None:
            raise UnreachableError(f"{self.address}: closed while connecting")
        transport = self._transport = connection.transport.connection
        self._connection = connection
        self._change(BrokerState(is_connected=True))
        if self._fast:
            self._fast.watch_blocked(transport, partial(self._on_blocked, transport))
        transport.closing.add_done_callback(partial(self._on_closed, transport))

    def _on_blocked(self, transport: Transport, reason: str | None) -> None:
        if transport is self._transport:
            self._change(BrokerState(is_connected=True, blocked_reason=reason))

    def _on_closed(self, transport: Transport, closing: "asyncio.Future[object]") -> None:
        if transport is self._transport:
            self._transport = None
            cause = None if closing.cancelled() else closing.exception()
            problem = f"{self.address}: the connection was lost: {broker_words(cause)}"
            self._change(BrokerState(is_connected=False, problem=problem))

    def _change(self, state: BrokerState) -> None:
        if state == self.state:
            return
        self.state = state
        _set(self._lost, to=not state.is_connected)
        _set(self._ready, to=state.is_connected and state.blocked_reason is None)
        if self._on_change:
            self._on_change(state)

    async def _channel(self, *, confirms: bool = False) -> AbstractChannel:
        transport = self._transport
        if transport is None:
            raise self._not_connected()
        try:
            async with asyncio.timeout(_CALL_SECONDS):
                if self._fast:
                    return await self._fast.channel(transport, confirms=confirms)
                return await transport.channel(publisher_confirms=confirms)
        except (AMQPError, RuntimeError, OSError) as error:
            raise self._no_channel(error) from None

    async def _close_channel(self, channel: AbstractChannel) -> None:
        if self._fast:
            self._fast.abandon(channel)
            return
        with suppress(AMQPError, RuntimeError, OSError):
            async with asyncio.timeout(_CALL_SECONDS):
                await channel.close()

    async def _plain_channel(self, *, confirms: bool) -> aio_pika.Channel:
        if self._transport is None or self._connection is None:
            raise self._not_connected()
        # Not `connection.channel()`: that of a robust connection would come back behind our back.
        channel = aio_pika.Channel(self._connection, publisher_confirms=confirms, on_return_raises=confirms)
        try:
            async with asyncio.timeout(_CALL_SECONDS):
                await channel.initialize()
        except (AMQPError, RuntimeError, OSError) as error:
            raise self._no_channel(error) from None
        return channel

    def _not_connected(self) -> BrokerLostError:
        return BrokerLostError(self.state.problem or f"{self.address}: not connected yet")

    def _no_channel(self, error: BaseException) -> BrokerLostError:
        return BrokerLostError(f"{self.address}: could not open a channel: {broker_words(error)}")


def _set(event: asyncio.Event, *, to: bool) -> None:
    if to:
        event.set()
    else:
        event.clear()


async def _pause(seconds: float) -> None:
    """Wait for this long and a bit, so that many who lost a broker do not all come back at once."""
    await asyncio.sleep(seconds + random.uniform(0, seconds / 4))  # noqa: S311 - no secret
