"""Dispatching a batch: which of its messages are sent now, and what becomes of each row."""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from outbox_core.broker import Broker
from outbox_core.broker_errors import BrokerLostError
from outbox_core.publisher import CONFIRMED, Message, Nacked, Publisher, Unencodable
from outbox_relay.hooks import Relayed
from outbox_relay.metrics import Metrics
from outbox_relay.queries import Key
from outbox_relay.routes import Routes
from outbox_relay.sending import (
    STALL_SECONDS,
    Sending,
    Waiting,
    send_all,
    send_singly,
    unanswered_routes,
)
from outbox_relay.settings import Settings
from outbox_relay.settlement import Defer, Leave, Sent, Verdict, judge, judge_expired, judge_unconfirmed
from outbox_relay.unconfirmed import LEASE_SECONDS, Leased, Unconfirmed
from outbox_relay.wire import message_of

_SENT, _LEAVE = Sent(), Leave()

_MOST_PROBES = 16
"""How many probes one batch may send: each has a channel of its own."""

_PROBE_SECONDS = 0.1
"""How long a batch waits for the confirm of a probe; a later one is settled by `Unconfirmed`."""

_log = logging.getLogger("outbox.relay")


@dataclass(slots=True)
class Dispatched:
    """What becomes of the rows of a batch."""

    verdicts: list[Verdict]
    """One for each row, in their order."""
    leased: list[Leased] = field(default_factory=list)
    """What was sent and is not confirmed."""
    lost: BrokerLostError | None = None
    """Why some of it will never be confirmed."""
    unanswered: int = 0
    """How many messages on the publisher's channel have no answer."""
    is_cut_short: bool = False
    """Messages that were to be sent one by one are left."""
    is_refused: bool = False
    """A queue has refused some of it."""


class Dispatch:
    """Sends the messages of claimed rows to one exchange."""

    def __init__(
        self, settings: Settings, metrics: Metrics, routes: Routes, unconfirmed: Unconfirmed
    ) -> None:
        self._settings = settings
        self._policy = settings.policy
        self._metrics = metrics
        self._routes = routes
        self._unconfirmed = unconfirmed

    async def send(
        self,
        rows: Sequence[Any],
        bodies: Mapping[Key, bytes],
        broker: Broker,
        publisher: Publisher,
        *,
        singly: bool,
    ) -> Dispatched:
        """Send what may be sent; `singly`, to find the message over which the broker closes the channel."""
        self._metrics.claimed(len(rows))
        done = Dispatched([_LEAVE] * len(rows))
        messages: dict[int, Message] = {}
        probes: dict[int, Message] = {}
        # A look at each row would cost all of them, and nearly always nothing is held back.
        is_quiet = not self._routes and not self._unconfirmed
        for place, row in enumerate(rows):
            if (remaining := row["remaining"]) is not None and remaining <= 0:
                done.verdicts[place] = judge_expired(self._policy)
                continue
            admission = "send" if is_quiet else self._admit(row, len(probes))
            if isinstance(admission, Defer):
                done.verdicts[place] = admission
                continue
            message = self._message(row, bodies)
            if message is None:
                continue
            if isinstance(message, Unencodable):
                done.verdicts[place] = judge(message, row["attempts"], self._policy)
            elif admission == "probe":
                probes[place] = message
            else:
                messages[place] = message
        if messages:
            await self._send(rows, messages, broker, publisher, done, singly=singly)
        if probes and done.lost is None:
            await self._probe(rows, probes, broker, done)
        self._metrics.routes_closed(len(self._routes))
        return done

    def _admit(self, row: Any, probes: int) -> Defer | str:
        """Whether the message of a row is sent, alone as a probe, or later."""
        if key_of(row) in self._unconfirmed:
            return Defer(LEASE_SECONDS, "sent, and not confirmed by the broker yet")
        routing_key = row["routing_key"]
        admission = self._routes.admit(
            routing_key, is_first_attempt=not row["attempts"], may_probe=probes < _MOST_PROBES
        )
        if isinstance(admission, str):
            return admission
        error = f"waits: a queue of {routing_key!r} refuses messages or does not confirm them"
        return Defer(admission, error)

    def _message(self, row: Any, bodies: Mapping[Key, bytes]) -> Message | Unencodable | None:
        """The row's message, or None if its body has to wait for the next batch."""
        size, largest = row["size"], self._settings.max_message_size
        if size > largest:
            return Unencodable(f"the body is {size} bytes long and the broker takes {largest}")
        body = bodies.get(key_of(row))
        return None if body is None else message_of(row, body, self._settings.expiration)

    async def _send(
        self,
        rows: Sequence[Any],
        messages: Mapping[int, Message],
        broker: Broker,
        publisher: Publisher,
        done: Dispatched,
        *,
        singly: bool,
    ) -> None:
        started = time.perf_counter()
        send = send_singly if singly else send_all
        sending = await send(
            publisher, self._settings.exchange_name, [*messages.values()], self._settings.publish_timeout
        )
        self._metrics.confirmed(time.perf_counter() - started)
        done.lost, done.is_cut_short = sending.lost, sending.is_cut_short
        stuck: frozenset[str] | None = frozenset()
        if None in sending.outcomes and sending.lost is None:
            done.unanswered = sum(
                outcome is None and waiting is not None
                for outcome, waiting in zip(sending.outcomes, sending.waiting, strict=True)
            )
            keys = [message.routing_key for message in messages.values()]
            stuck = unanswered_routes(keys, sending.outcomes, is_current=broker.carries(publisher))
            if broker.is_blocked:
                # Under an alarm the broker reads nothing: that is no fault of a queue, and no attempt.
                stuck = None
        self._judge([rows[place] for place in messages], [*messages], sending, stuck, done)

    async def _probe(
        self, rows: Sequence[Any], probes: Mapping[int, Message], broker: Broker, done: Dispatched
    ) -> None:
        """Send messages each on a channel of its own: a queue that does not answer blocks no other."""
        sent = await asyncio.gather(*(self._probe_one(message, broker) for message in probes.values()))
        for (place, message), sending in zip(probes.items(), sent, strict=True):
            stuck = None if broker.is_blocked else frozenset({message.routing_key})
            self._judge([rows[place]], [place], sending, stuck, done)

    async def _probe_one(self, message: Message, broker: Broker) -> Sending:
        try:
            publisher = await broker.publisher(max_message_size=self._settings.max_message_size)
        except BrokerLostError as error:
            return Sending([None], [None], error)
        exchange = self._settings.exchange_name
        # The batch has waited for its own messages already, and the server for its transaction.
        longest_seconds = min(self._settings.publish_timeout, STALL_SECONDS)
        try:
            sending = await send_all(publisher, exchange, [message], longest_seconds, _PROBE_SECONDS)
        except BrokerLostError as error:
            sending = Sending([None], [None], error)
        if sending.outcomes[0] is None and sending.lost is None:
            await self._unconfirmed.keep(publisher)
        else:
            await publisher.aclose()
        return sending

    def _judge(
        self,
        rows: Sequence[Any],
        places: Sequence[int],
        sending: Sending,
        stuck: frozenset[str] | None,
        done: Dispatched,
    ) -> None:
        """Decide on rows whose messages were sent, and open and close their routes.

        `stuck` are the routing keys with a queue that does not answer; None if no queue is to blame.
        """
        answered = list(zip(rows, places, sending.outcomes, sending.waiting, strict=True))
        if self._routes:
            confirmed = (row["routing_key"] for row, _, outcome, _ in answered if outcome is CONFIRMED)
            for routing_key in self._routes.confirmed(confirmed):
                _log.info("messages of %s are confirmed again", routing_key)
        for row, place, outcome, waiting in answered:
            if outcome is CONFIRMED:
                # Nearly all of them are, and need no judging.
                done.verdicts[place] = _SENT
            elif outcome is not None:
                done.verdicts[place] = judge(outcome, row["attempts"], self._policy)
                done.is_refused |= isinstance(outcome, Nacked)
                if isinstance(outcome, Nacked) and self._routes.refused(row["routing_key"]):
                    _log.warning("messages of %s wait: a queue refuses them", row["routing_key"])
            elif waiting is not None and sending.lost is None:
                self._lease(row, place, waiting, stuck, done)

    def _lease(
        self, row: Any, place: int, waiting: Waiting, stuck: frozenset[str] | None, done: Dispatched
    ) -> None:
        """Keep the row of a message without an answer from being sent again."""
        routing_key, attempts = row["routing_key"], row["attempts"]
        if stuck is None:
            done.verdicts[place] = Defer(LEASE_SECONDS, "sent, and not confirmed: the broker has an alarm")
        elif routing_key in stuck or self._routes.is_closed(routing_key):
            done.verdicts[place] = judge_unconfirmed(attempts, self._policy, LEASE_SECONDS)
            attempts += 1
            if self._routes.unconfirmed(routing_key):
                _log.warning("messages of %s wait: a queue does not confirm them", routing_key)
        else:
            # Behind others that block its channel: it is sent again on another one.
            return
        is_counted = stuck is not None
        done.leased.append(Leased(key_of(row), attempts, relayed_of(row), row["age"], waiting, is_counted))


def key_of(row: Any) -> Key:
    """What identifies a claimed row."""
    return row["partition"], row["id"]


def relayed_of(row: Any, error: str | None = None) -> Relayed:
    """A claimed row as hooks are told of it."""
    return Relayed(row["message_id"], row["routing_key"], row["attempts"] + (error is not None), error)
