"""What is done with the dead letters of a queue: counted, shown, sent to their listener again, deleted."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias, assert_never

from outbox_cli.dead_letters import Census, DeadLetter, Selection, dead_letter_of, redriven
from outbox_cli.failures import CommandError
from outbox_cli.queue_reader import WINDOW, QueueReader, Taken
from outbox_core.broker import Broker
from outbox_core.publisher import Confirmed, Nacked, Outcome, Publisher, Returned, Unencodable

_BATCH = 1000
_CONFIRM_SECONDS = 30.0

Found: TypeAlias = tuple[Taken, DeadLetter]
OnProgress: TypeAlias = Callable[[int], None]
"""Told how many dead letters have been looked at."""


@dataclass(frozen=True, slots=True)
class Walked:
    """What came of going through a dead-letter queue."""

    looked_at: int
    """How many dead letters were read."""
    done: int
    """How many of them were meant, and done with."""
    refused: tuple[str, ...] = ()
    """Why some of those meant stay where they are, one line each."""
    unreadable: tuple[str, ...] = ()
    """What is wrong with others, of which nobody can say whether they were meant; they stay, too."""


async def survey(
    broker: Broker,
    dead_letter_queue: str,
    selection: Selection,
    limit: int | None,
    *,
    sample: int | None = None,
) -> tuple[Walked, Census]:
    """Count those meant, of the first `sample`, and change nothing."""
    census = Census()

    async def count(found: list[Found]) -> list[str]:
        for _, letter in found:
            census.add(letter)
        return []

    walked = await _walk(broker, dead_letter_queue, selection, limit, count, sample=sample)
    return walked, census


async def look(
    broker: Broker, dead_letter_queue: str, selection: Selection, limit: int
) -> tuple[Walked, list[DeadLetter]]:
    """The first `limit` of those meant."""
    letters: list[DeadLetter] = []

    async def keep(found: list[Found]) -> list[str]:
        letters.extend(letter for _, letter in found)
        return []

    return await _walk(broker, dead_letter_queue, selection, limit, keep), letters


async def purge(
    broker: Broker,
    dead_letter_queue: str,
    selection: Selection,
    limit: int | None,
    on_progress: OnProgress,
) -> Walked:
    """Delete those meant."""

    async def delete(found: list[Found]) -> list[str]:
        for taken, _ in found:
            taken.ack()
        return []

    return await _walk(broker, dead_letter_queue, selection, limit, delete, on_progress=on_progress)


async def redrive(
    broker: Broker,
    queues: tuple[str, str],
    *,
    selection: Selection,
    limit: int | None,
    rate: float | None,
    on_progress: OnProgress,
) -> Walked:
    """Send those meant to their listener's queue, the first of `queues`, from its dead-letter queue.

    Each is confirmed by the broker before it is acked: whatever ends this leaves every message in one of the
    queues, and at most a batch in both.
    """
    queue, dead_letter_queue = queues
    # Before anything is read, so that a wrong name disturbs nobody.
    await broker.depth(queue)
    publisher = await broker.publisher()
    pace = _Pace(rate)

    async def send(found: list[Found]) -> list[str]:
        await pace.wait(len(found))
        return await _sent(publisher, queue, found)

    try:
        return await _walk(
            broker,
            dead_letter_queue,
            selection,
            limit,
            send,
            batch=pace.batch,
            window=pace.window,
            on_progress=on_progress,
        )
    finally:
        await publisher.aclose()


async def _sent(publisher: Publisher, queue: str, found: list[Found]) -> list[str]:
    """Publish and ack; tells why some cannot be sent, and raises where none of them can."""
    now = datetime.now(UTC)
    messages = [redriven(letter, queue, now) for _, letter in found]
    outcomes = await publisher.publish("", messages, _CONFIRM_SECONDS)
    refused, full = list[str](), list[CommandError]()
    for (taken, letter), outcome in zip(found, outcomes, strict=True):
        match _judged(outcome, queue):
            case None:
                taken.ack()
            case CommandError() as error:
                full.append(error)
            case str(reason):
                refused.append(f"message {letter.message_id} stays: {reason}")
    if full:
        raise full[0]
    return refused


def _judged(outcome: Outcome, queue: str) -> CommandError | str | None:
    match outcome:
        case Confirmed():
            return None
        case Unencodable(reason):
            return reason
        case Returned():
            return CommandError(
                f'queue "{queue}" has gone; what was not redriven is still in its dead-letter queue: '
                "start a worker or the operator, which make it again, and redrive the rest"
            )
        case Nacked():
            return CommandError(
                f'queue "{queue}" takes no more messages, since it is full; what was not redriven is still '
                "in its dead-letter queue: wait until the listener has caught up, and redrive the rest"
            )
        case _:
            assert_never(outcome)


async def _walk(
    broker: Broker,
    dead_letter_queue: str,
    selection: Selection,
    limit: int | None,
    work: Callable[[list[Found]], Awaitable[list[str]]],
    *,
    batch: int = _BATCH,
    window: int = WINDOW,
    sample: int | None = None,
    on_progress: OnProgress = lambda _: None,
) -> Walked:
    """Read the queue, and hand those meant to `work`, which tells why some of them are not done."""
    looked_at = meant = 0
    refused: list[str] = []
    async with QueueReader(broker, dead_letter_queue, at_most=sample, window=window) as reader:
        while limit is None or meant < limit:
            most = batch if limit is None else min(batch, limit - meant)
            taken = await reader.take(most)
            if not taken:
                break
            letters = [(each, dead_letter_of(each.received.message)) for each in taken]
            found = [(each, letter) for each, letter in letters if selection.means(letter)]
            if found:
                refused += await work(found)
            looked_at, meant = looked_at + len(taken), meant + len(found)
            on_progress(looked_at)
        unreadable = tuple(reader.unreadable)
    return Walked(looked_at + len(unreadable), meant - len(refused), tuple(refused), unreadable)


class _Pace:
    """Keeps to a number of messages a second, in batches of at most a tenth of a second's worth."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._next_at = time.monotonic()
        self.batch = _BATCH if rate is None else max(1, min(_BATCH, round(rate / 10)))
        """How many messages to send at a time."""
        # The broker closes a channel on which a message has waited for half an hour.
        self.window = WINDOW if rate is None else max(1, min(WINDOW, round(rate * 10)))
        """How many messages to have at hand."""

    async def wait(self, count: int) -> None:
        """Until the next `count` messages may follow."""
        if self._rate is None:
            return
        await asyncio.sleep(max(0.0, self._next_at - time.monotonic()))
        self._next_at = max(self._next_at, time.monotonic()) + count / self._rate
