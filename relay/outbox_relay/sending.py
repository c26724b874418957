"""Sending the messages of one batch, and telling a queue that does not answer from a broker that is slow."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from outbox_core.broker_errors import BrokerLostError, MessageRefusedError
from outbox_core.publisher import (
    Answers,
    Confirmed,
    Message,
    Nacked,
    Outcome,
    Publisher,
    Returned,
    Unencodable,
)

STALL_SECONDS = 5.0
"""How long no confirm comes before a batch is settled without those that are missing."""

_ANSWERS = (Confirmed, Nacked, Returned)
"""What comes from the broker."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A message that was sent: where its answer is to be found."""

    answers: Answers
    place: int


@dataclass(slots=True)
class Sending:
    """What is known of the messages of a batch, in their order."""

    outcomes: list[Outcome | None]
    waiting: list[Waiting | None]
    """None for a message that was not sent."""
    lost: BrokerLostError | None = None
    """Why the missing answers will never come."""
    is_cut_short: bool = False
    """The time of the batch was over before each message was sent."""


async def send_all(
    publisher: Publisher,
    exchange: str,
    messages: Sequence[Message],
    longest_seconds: float,
    stall_seconds: float = STALL_SECONDS,
) -> Sending:
    """Send the messages together."""
    if not messages:
        return Sending([], [])
    answers = await publisher.send(exchange, messages, longest_seconds, stall_seconds)
    outcomes = [*answers.outcomes]
    waiting: list[Waiting | None] = [Waiting(answers, place) for place in range(len(messages))]
    return Sending(outcomes, waiting, answers.lost if None in outcomes else None)


async def send_singly(
    publisher: Publisher, exchange: str, messages: Sequence[Message], longest_seconds: float
) -> Sending:
    """Send one message after the other, up to the one over which the broker closes the channel.

    The rest is for the next channel, and so is what is left after half of `longest_seconds`: the database
    ends a transaction that takes much longer, and with it all that was confirmed.
    """
    ends = time.monotonic() + longest_seconds / 2
    sending = Sending([None] * len(messages), [None] * len(messages))
    for place, message in enumerate(messages):
        if time.monotonic() >= ends:
            sending.is_cut_short = True
            return sending
        try:
            sent = await send_all(publisher, exchange, [message], longest_seconds / 2)
        except BrokerLostError as error:
            # It was not sent, and those before it keep their outcomes.
            sending.lost = error
            return sending
        sending.outcomes[place], sending.waiting[place] = sent.outcomes[0], sent.waiting[0]
        if isinstance(sent.lost, MessageRefusedError):
            sending.outcomes[place] = Unencodable(str(sent.lost))
            return sending
        if sent.outcomes[0] is None:
            sending.lost = sent.lost
            sending.is_cut_short = sent.lost is None
            return sending
    return sending


def unanswered_routes(
    routing_keys: Sequence[str], outcomes: Sequence[Outcome | None], *, is_current: bool
) -> frozenset[str]:
    """The routing keys with a queue that does not answer, given what is known of each message.

    A broker reads messages in their order: one without an answer before one with an answer was read, and its
    queue does not confirm it. What comes after the last answer may not have been read at all, as RabbitMQ
    stops to read from a connection whose messages a queue does not take. If nothing else is known, any of
    them may be the reason; but not if the connection is known to be stuck, and no longer the current one.
    """
    answered = [place for place, outcome in enumerate(outcomes) if isinstance(outcome, _ANSWERS)]
    last = answered[-1] if answered else 0
    missing = [place for place, outcome in enumerate(outcomes) if outcome is None]
    read = frozenset(routing_keys[place] for place in missing if place < last)
    if read or not is_current:
        return read
    return frozenset(routing_keys[place] for place in missing)
