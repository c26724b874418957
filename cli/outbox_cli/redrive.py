"""What is done with the dead letters of a queue: counted, shown, sent to their listener again, deleted."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeAlias, assert_never

from outbox_cli.dead_letters import DeadLetter, Selection, dead_letter_of, redriven
from outbox_cli.failures import CommandError
from outbox_cli.queue_reader import WINDOW, QueueReader, Taken
from outbox_core.broker import Broker
from outbox_core.publisher import Confirmed, Nacked, Outcome, Publisher, Returned, Unencodable

_BATCH = 1000
_CONFIRM_SECONDS = 30.0

Found: TypeAlias = tuple[Taken, DeadLetter]
OnProgress: TypeAlias = Callable[[int], None]
"""Told how many dead letters have been read."""


@dataclass(slots=True)
class Walked:
    """What has come so far of going through a dead-letter queue."""

    read: int = 0
    """How many dead letters were read."""
    done: int = 0
    """How many of them were meant, and done with."""
    refused: list[str] = field(default_factory=list)
    """Why some of those meant stay where they are, one line each."""
    unreadable: list[str] = field(default_factory=list)
    """What is wrong with others, of which nobody can say whether they were meant; they stay, too."""
    missing_ids: set[str] = field(default_factory=set)
    """The ids asked for that no dead letter has; empty until all were read."""

    @property
    def looked_at(self) -> int:
        """How many there were, with those that cannot be read."""
        return self.read + len(self.unreadable)


async def survey(
    broker: Broker,
    dead_letter_queue: str,
    selection: Selection,
    limit: int | None,
    *,
    sample: int | None = None,
    on_found: Callable[[DeadLetter], None],
) -> Walked:
    """Count those meant, of the first `sample`, and change nothing."""
    walked = Walked()

    async def count(found: list[Found]) -> None:
        for _, letter in found:
            on_found(letter)
        walked.done += len(found)

    await _walk(broker, dead_letter_queue, selection, limit, count, walked=walked, sample=sample)
    return walked


async def purge(
    broker: Broker,
    dead_letter_queue: str,
    selection: Selection,
    limit: int,
    *,
    walked: Walked,
    on_progress: OnProgress,
) -> None:
    """Delete those meant."""

    async def delete(found: list[Found]) -> None:
        walked.done += sum(taken.ack() for taken, _ in found)

    await _walk(broker, dead_letter_queue, selection, limit, delete, walked=walked, on_progress=on_progress)


async def redrive(
    broker: Broker,
    queues: tuple[str, str],
    *,
    selection: Selection,
    limit: int | None,
    rate: float | None,
    walked: Walked,
    on_progress: OnProgress,
) -> None:
    """Send those meant to their listener's queue, the first of `queues`, from its dead-letter queue.

    Each is confirmed by the broker before it is acked: whatever ends this leaves every message in one of the
    queues, and at most a batch in both.
    """
    queue, dead_letter_queue = queues
    # Before anything is read, so that a wrong name disturbs nobody.
    await broker.depth(queue)
    publisher = await broker.publisher()
    pace = _Pace(rate)

    async def send(found: list[Found]) -> None:
        await pace.wait(len(found))
        await _send(publisher, queue, found, walked)

    try:
        await _walk(
            broker,
            dead_letter_queue,
            selection,
            limit,
            send,
            walked=walked,
            batch=pace.batch,
            window=pace.window,
            on_progress=on_progress,
        )
    finally:
        await publisher.aclose()


async def _send(publisher: Publisher, queue: str, found: list[Found], walked: Walked) -> None:
    """Publish and ack; raises if the queue takes none of them any more."""
    now = datetime.now(UTC)
    messages = [redriven(letter, queue, now) for _, letter in found]
    outcomes = await publisher.publish("", messages, _CONFIRM_SECONDS)
    full: CommandError | None = None
    for (taken, letter), outcome in zip(found, outcomes, strict=True):
        match _judged(outcome, queue):
            case None:
                taken.ack()
                walked.done += 1
            case CommandError() as error:
                full = full or error
            case str(reason):
                walked.refused.append(f"message {letter.message_id} stays: {reason}")
    if full:
        raise full


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
    work: Callable[[list[Found]], Awaitable[None]],
    *,
    walked: Walked,
    batch: int = _BATCH,
    window: int = WINDOW,
    sample: int | None = None,
    on_progress: OnProgress = lambda _: None,
) -> None:
    """Read the queue, hand those meant to `work`, and give back what that does not ack."""
    meant, missing = 0, set(selection.ids)
    async with QueueReader(broker, dead_letter_queue, at_most=sample, window=window) as reader:
        walked.unreadable = reader.unreadable
        while limit is None or meant < limit:
            most = batch if limit is None else min(batch, limit - meant)
            taken = await reader.take(most)
            if not taken:
                walked.missing_ids = missing
                break
            letters = [(each, dead_letter_of(each.received.message)) for each in taken]
            missing.difference_update(letter.message_id or "" for _, letter in letters)
            found = [(each, letter) for each, letter in letters if selection.means(letter)]
            meant += len(found)
            if found:
                await work(found)
            walked.read += len(taken)
            for each in taken:
                each.hold()
            on_progress(walked.read)


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
