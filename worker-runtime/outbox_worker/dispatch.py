"""Publishing what must not be lost, until the broker has confirmed it.

What is not confirmed is awaited for as long as its channel is open: a queue that is stuck (one without a
majority) keeps what it was sent, and would hold a copy for each time it was sent again.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from outbox_core.backoff import Backoff
from outbox_core.broker import Broker
from outbox_core.broker_errors import (
    AccessRefusedError,
    BrokerLostError,
    ExchangeMissingError,
    MessageRefusedError,
)
from outbox_core.publisher import Confirmed, Message, Nacked, Outcome, Publisher, Returned, Unencodable
from outbox_worker.problems import Problems

_log = logging.getLogger("outbox.worker")

_AGAIN = Backoff(0.1, 5.0)
_LOOK_SECONDS = 1.0
"""How often to ask whether the message is still wanted while the broker takes none."""
_NO_TIMEOUT_SECONDS = 365 * 86400.0
"""For a publisher: only the loss of its channel ends the wait."""


@dataclass(frozen=True, slots=True)
class Sent:
    """The broker has it."""


@dataclass(frozen=True, slots=True)
class Unwanted:
    """It is not needed any more, and may or may not have arrived."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The broker will never take it like this."""

    reason: str
    """Why, in one line."""
    is_forbidden: bool = False
    """It is the user who may not write there, whatever the message."""


@dataclass(frozen=True, slots=True)
class _Held:
    """It was not taken this time."""

    reason: str
    """Why, in one line."""
    is_missing: bool = False
    """To declare what is missing would help."""
    is_suspect: bool = False
    """It may be this message that the broker refuses."""


Result: TypeAlias = Sent | Unwanted | Refused

_SENT = Sent()
_UNWANTED = Unwanted()


class Dispatch:
    """Publishes to exchanges, each on a channel of its own: the broker closes one over a single message."""

    def __init__(
        self,
        broker: Broker,
        problems: Problems,
        *,
        publish_timeout_seconds: float,
        repair: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`repair` declares what is missing; None where that is for somebody else to do."""
        self._broker = broker
        self._problems = problems
        self._timeout_seconds = publish_timeout_seconds
        self._repair = repair
        self._publishers: dict[str, Publisher] = {}
        self._opening = asyncio.Lock()
        self._sending: set[asyncio.Task[Outcome]] = set()

    async def send(
        self,
        exchange: str,
        message: Message,
        is_wanted: Callable[[], bool],
        *,
        may_be_forbidden: bool = False,
    ) -> Result:
        """Publish until the broker has it, or nobody wants it any more.

        With `may_be_forbidden` a lacking permission is a result, and otherwise somebody has to grant it.
        """
        this = object()
        failures, is_suspect = 0, False
        try:
            while is_wanted():
                if not await self._is_ready():
                    self._problems.note(this, f'exchange "{exchange}": nothing can be published for now')
                    continue
                tried = await self._try(exchange, message, is_wanted, this, alone=is_suspect)
                match tried:
                    case Sent() | Unwanted():
                        return tried
                    case Refused(is_forbidden=is_forbidden) if may_be_forbidden or not is_forbidden:
                        return tried
                failures += 1
                is_suspect = isinstance(tried, _Held) and tried.is_suspect
                self._problems.note(this, tried.reason)
                _log.warning(
                    "message %s is held until it can be published: %s", message.message_id, tried.reason
                )
                if isinstance(tried, _Held) and tried.is_missing:
                    await self._mend()
                await asyncio.sleep(_AGAIN.delay(failures))
            return _UNWANTED
        finally:
            self._problems.solved(this)

    async def aclose(self) -> None:
        """Close the channels, and with them all that is still awaited."""
        for publisher in self._publishers.values():
            await publisher.aclose()
        self._publishers.clear()
        waiting = list(self._sending)
        for sending in waiting:
            sending.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    async def _is_ready(self) -> bool:
        if self._broker.is_connected and not self._broker.is_blocked:
            return True
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                await self._broker.wait_ready()
        except TimeoutError:
            return False
        return True

    async def _try(
        self,
        exchange: str,
        message: Message,
        is_wanted: Callable[[], bool],
        this: object,
        *,
        alone: bool,
    ) -> Sent | Unwanted | Refused | _Held:
        """Publish once; `this` has the problem while there is no answer."""
        # A task of its own: nothing that is on its way can be taken back.
        sending = asyncio.create_task(self._publish(exchange, message, alone=alone))
        self._sending.add(sending)
        sending.add_done_callback(self._sent)
        late_at = time.monotonic() + self._timeout_seconds
        is_late = False
        while not sending.done():
            if not is_wanted():
                return _UNWANTED
            if not is_late and time.monotonic() >= late_at:
                is_late = True
                self._report_late(exchange, message, this)
            await asyncio.wait([sending], timeout=min(_LOOK_SECONDS, self._timeout_seconds))
        try:
            outcome = sending.result()
        except MessageRefusedError as error:
            # Another message of the same moment may have been the one; alone there is no doubt.
            return Refused(str(error)) if alone else _Held(str(error), is_suspect=True)
        except AccessRefusedError as error:
            return Refused(str(error), is_forbidden=True)
        except BrokerLostError as error:
            return _Held(str(error), is_missing=isinstance(error, ExchangeMissingError))
        return _result_of(outcome, exchange)

    async def _publish(self, exchange: str, message: Message, *, alone: bool) -> Outcome:
        publisher = await (self._broker.publisher() if alone else self._publisher(exchange))
        try:
            [outcome] = await publisher.publish(exchange, [message], _NO_TIMEOUT_SECONDS)
        finally:
            if alone or not publisher.is_usable:
                await publisher.aclose()
        return outcome

    def _sent(self, sending: asyncio.Task[Outcome]) -> None:
        self._sending.discard(sending)
        if not sending.cancelled():
            sending.exception()  # of one that nobody waits for any more, it is of no interest

    def _report_late(self, exchange: str, message: Message, this: object) -> None:
        reason = (
            f'exchange "{exchange}": the broker has not confirmed a message for {self._timeout_seconds:g} s'
        )
        self._problems.note(this, reason)
        _log.warning("message %s is held until it is confirmed: %s", message.message_id, reason)

    async def _publisher(self, exchange: str) -> Publisher:
        async with self._opening:
            publisher = self._publishers.get(exchange)
            if publisher is None or not publisher.is_usable:
                publisher = self._publishers[exchange] = await self._broker.publisher()
            return publisher

    async def _mend(self) -> None:
        if self._repair is None:
            return
        try:
            await self._repair()
        except BrokerLostError as error:
            _log.warning("what is missing could not be declared: %s", error)


def _result_of(outcome: Outcome, exchange: str) -> Sent | Refused | _Held:
    match outcome:
        case Confirmed():
            return _SENT
        case Unencodable(reason):
            return Refused(reason)
        case Returned():
            return _Held(f'exchange "{exchange}": no queue is bound to it', is_missing=True)
        case Nacked():
            return _Held(f'exchange "{exchange}": its queue takes no messages')
        case _:
            assert_never(outcome)
