"""What an exchange routes, seen through a queue of our own: nobody else gets a message less."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self
from uuid import uuid4

from outbox.topology import check_binding_key, check_exchange
from outbox_cli.failures import CommandError
from outbox_core.broker import Broker
from outbox_core.broker_errors import (
    AccessRefusedError,
    AuthenticationError,
    BrokerError,
    BrokerLostError,
    ExchangeMissingError,
    VhostMissingError,
)
from outbox_core.consumer import Consumer, Received

_QUEUE_PREFIX = "outbox.tail."
_HELD = 1000
"""How many messages wait on the broker for a slow terminal; older ones make room."""
_AT_ONCE = 100
_LOOK_SECONDS = 1.0
_PAUSE_SECONDS = 1.0
_RIGHTS = "configure, write and read for ^outbox[.]tail[.], and read for the exchange"
_MENDED_BY_PEOPLE = (ExchangeMissingError, AuthenticationError, VhostMissingError)


@dataclass(frozen=True, slots=True)
class View:
    """What is watched; a `TopologyError` says what of it cannot be."""

    exchange: str
    """Where messages are published."""
    patterns: tuple[str, ...]
    """Their routing keys, as in a binding."""

    def __post_init__(self) -> None:
        check_exchange(self.exchange)
        for pattern in self.patterns:
            check_binding_key(pattern, f"{_QUEUE_PREFIX}*")


class Tail:
    """The messages of a view from the beginning of the block on, as they go by.

    Where the connection is lost this is told to `on_lost`, and it goes on with a queue anew, which is told to
    `on_back`: what was sent meanwhile is not seen.
    """

    def __init__(
        self,
        broker: Broker,
        view: View,
        *,
        on_lost: Callable[[BrokerLostError], None],
        on_back: Callable[[], None],
    ) -> None:
        self._broker = broker
        self._view = view
        self._on_lost = on_lost
        self._on_back = on_back
        self._consumer: Consumer
        self._arrived: list[Received] = []
        self._arrival = asyncio.Event()
        self._taken: list[Received] = []

    async def __aenter__(self) -> Self:
        await self._watch()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._consumer.aclose()

    async def take(self) -> list[Received]:
        """The next messages, at least one; with this, those taken before are done with."""
        for received in self._taken:
            self._consumer.ack(received)
        while not self._arrived:
            try:
                await self._wait()
            except BrokerLostError as error:
                self._on_lost(error)
                await self._come_back()
                self._on_back()
        self._taken, self._arrived = self._arrived, []
        return self._taken

    async def _watch(self) -> None:
        # A name of its own each time: the broker may not have noticed yet that the last one's owner is gone.
        queue = f"{_QUEUE_PREFIX}{uuid4().hex[:8]}"
        try:
            await self._broker.private_queue(queue, self._view.exchange, self._view.patterns, _HELD)
            self._consumer = await self._broker.consumer(queue, _AT_ONCE, self._on_message)
        except AccessRefusedError as error:
            raise CommandError(f"{error}: {_RIGHTS}") from None

    def _on_message(self, received: Received) -> None:
        self._arrived.append(received)
        self._arrival.set()

    async def _wait(self) -> None:
        """Until there is a message, or for a moment; raises why there can be none any more."""
        self._arrival.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_SECONDS):
                await self._arrival.wait()
        if not self._consumer.is_usable:
            raise await self._consumer.wait_lost()

    async def _come_back(self) -> None:
        await self._consumer.aclose()
        while not self._consumer.is_usable:
            await asyncio.sleep(_PAUSE_SECONDS)
            try:
                await self._broker.connect_once()
                await self._watch()
            except _MENDED_BY_PEOPLE:
                raise
            except BrokerError:
                continue
