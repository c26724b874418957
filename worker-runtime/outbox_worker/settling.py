"""Settling a failed message: published to a delay tier or the dead-letter exchange, and only then acked."""

import logging
from datetime import timedelta
from enum import Enum, auto
from functools import partial
from typing import assert_never

from outbox.topology import dead_letter_exchange, tier_name
from outbox_worker.dispatch import Dispatch, Refused, Sent, Unwanted
from outbox_worker.link import Held
from outbox_worker.redelivery import Failure, dead_letter, retry_message, returned_message

_log = logging.getLogger("outbox.worker")


class Settled(Enum):
    """What has become of a failed message."""

    RETRIED = auto()
    """It waits in a delay tier."""
    DEAD_LETTERED = auto()
    """It is in the dead-letter queue, or the broker moves it there."""
    LEFT = auto()
    """It could not be settled: the connection it came by is gone, or it was held for as long as it may."""


class Settling:
    """Settles the failed messages of one queue."""

    def __init__(self, exchange: str, queue: str, dispatch: Dispatch) -> None:
        self._exchange = exchange
        self._queue = queue
        self._dispatch = dispatch
        self._dlx = dead_letter_exchange(exchange)
        self._dlx_is_forbidden = False

    async def retry(self, held: Held, failure: Failure, delay: timedelta) -> Settled:
        """Have the message come again after `delay`."""
        held.extend()
        message = retry_message(held.message, self._queue, failure)
        tier = tier_name(self._exchange, delay)
        match result := await self._dispatch.send(tier, message, partial(_is_wanted, held)):
            case Sent():
                self._ack(held)
                return Settled.RETRIED
            case Unwanted():
                return self._left(held)
            case Refused(reason):
                _log.error("message %s cannot be retried: %s", message.message_id, reason)
                return await self.dead_letter(held, failure)
            case _:
                assert_never(result)

    async def give_back(self, held: Held, delay: timedelta, deadline_ms: int | None) -> bool:
        """Have the message come again by a delay tier, which begins the broker's count of returns anew."""
        held.extend()
        message = returned_message(held.message, self._queue, deadline_ms)
        tier = tier_name(self._exchange, delay)
        result = await self._dispatch.send(tier, message, partial(_is_wanted, held), may_be_forbidden=True)
        if isinstance(result, Sent):
            self._ack(held)
            return True
        return False

    async def dead_letter(self, held: Held, failure: Failure) -> Settled:
        """Move the message to the dead-letter queue, with what is known of its failure."""
        held.extend()
        if self._dlx_is_forbidden:
            return self._by_the_broker(held)
        for short in (False, True):
            message = dead_letter(held.message, self._queue, failure, short=short)
            result = await self._dispatch.send(
                self._dlx, message, partial(_is_wanted, held), may_be_forbidden=True
            )
            match result:
                case Sent():
                    self._ack(held)
                    return Settled.DEAD_LETTERED
                case Unwanted():
                    return self._left(held)
                case Refused(reason, is_forbidden):
                    if is_forbidden:
                        self._dlx_is_forbidden = True
                        _log.info("dead letters come without the error in their headers: %s", reason)
                        break
                    _log.warning("dead letter %s is refused: %s", message.message_id, reason)
                case _:
                    assert_never(result)
        return self._by_the_broker(held)

    def _by_the_broker(self, held: Held) -> Settled:
        return Settled.DEAD_LETTERED if held.dead_letter() else self._left(held)

    def _ack(self, held: Held) -> None:
        if not held.ack():
            _log.warning(
                "message %s of queue %s is settled but could not be acked, since its connection is gone; "
                "it is delivered a second time",
                held.message.message_id,
                self._queue,
            )

    def _left(self, held: Held) -> Settled:
        if not held.is_lost:
            return Settled.LEFT
        _log.warning(
            "message %s of queue %s could not be settled, since its connection is gone; "
            "it is delivered again",
            held.message.message_id,
            self._queue,
        )
        return Settled.LEFT


def _is_wanted(held: Held) -> bool:
    return not held.is_lost and not held.is_overdue
