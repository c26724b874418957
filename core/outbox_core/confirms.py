"""Which published messages the broker has answered for, by delivery tag.

Pure: fed with the broker's answers, it says when a batch is complete. The broker numbers the messages of a
channel from 1 and confirms them one by one, or all up to one (`multiple`). What it returns, it confirms
afterwards like anything else.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias

from outbox_core.publisher import Confirmed, Message, Nacked, Outcome, Returned

Answer: TypeAlias = Confirmed | Nacked


class Batch:
    """Messages with consecutive tags, and what is known of each."""

    __slots__ = (
        "_front",
        "_messages",
        "_outcomes",
        "_places",
        "_returns",
        "end_tag",
        "first_tag",
        "missing",
        "on_complete",
    )

    def __init__(self, first_tag: int, messages: Sequence[Message], on_complete: Callable[[], None]) -> None:
        self.first_tag = first_tag
        self.end_tag = first_tag + len(messages)
        """The first tag behind the batch."""
        self.on_complete = on_complete
        self._messages = messages
        self.missing = len(messages)
        """How many have no answer."""
        self._outcomes: list[Outcome | None] = [None] * len(messages)
        self._returns: dict[int, Returned] = {}
        self._places: dict[tuple[str, str], list[int]] = {}
        """The indexes of a message id and routing key; filled when first needed."""
        self._front = 0
        """All before this index have an answer."""

    @property
    def outcomes(self) -> Sequence[Outcome | None]:
        """One for each message; None if it has no answer yet."""
        return self._outcomes

    def forget_bodies(self) -> None:
        """Keep of the messages only what a return is recognised by."""
        self._find_places()
        self._messages = ()

    def answer_one(self, index: int, answer: Answer) -> None:
        """Note the answer for one message; a second answer changes nothing."""
        if self._outcomes[index] is None:
            self._outcomes[index] = self._returns.get(index, answer)
            self.missing -= 1
            if index == self._front:
                self._front += 1

    def answer_before(self, end: int, answer: Answer) -> None:
        """Note the answer for every message before the index `end` that has none."""
        start, outcomes = self._front, self._outcomes
        if end <= start:
            return
        nothing_behind_front = self.missing == len(outcomes) - start
        if nothing_behind_front and not self._returns:
            outcomes[start:end] = [answer] * (end - start)
            self.missing -= end - start
        else:
            for index in range(start, end):
                self.answer_one(index, answer)
        self._front = max(self._front, end)

    def note_return(self, message_id: str, routing_key: str, returned: Returned) -> None:
        """Note that a message which has no answer came back.

        A return carries no tag. Where the same id was published twice with one key, both are taken to have
        come back: to send one of them again may duplicate it, to forget one would lose it.
        """
        self._find_places()
        for index in self._places.get((message_id, routing_key), ()):
            self._returns[index] = returned

    def _find_places(self) -> None:
        if not self._places:
            for index, message in enumerate(self._messages):
                self._places.setdefault((message.message_id or "", message.routing_key), []).append(index)


class Confirms:
    """The batches of one channel that still lack answers."""

    def __init__(self) -> None:
        self._batches: deque[Batch] = deque()
        self._next_tag = 1

    def add(self, messages: Sequence[Message], on_complete: Callable[[], None]) -> Batch:
        """Give the messages the tags that the broker will give them: to be called in the order of sending."""
        batch = Batch(self._next_tag, messages, on_complete)
        self._next_tag = batch.end_tag
        self._batches.append(batch)
        return batch

    def answer(self, tag: int, *, multiple: bool, answer: Answer) -> None:
        """Take in an ack or a nack, and let go of the batches that it completes."""
        if multiple:
            # A tag of 0 means everything so far.
            self._answer_up_to(tag or self._next_tag - 1, answer)
        else:
            self._answer_one(tag, answer)
        for batch in [batch for batch in self._batches if not batch.missing]:
            self._batches.remove(batch)
            batch.on_complete()

    def note_return(self, message_id: str, routing_key: str, returned: Returned) -> None:
        """Take in a returned message, whose confirm follows."""
        for batch in self._batches:
            batch.note_return(message_id, routing_key, returned)

    def _answer_one(self, tag: int, answer: Answer) -> None:
        for batch in self._batches:
            if batch.first_tag <= tag < batch.end_tag:
                batch.answer_one(tag - batch.first_tag, answer)

    def _answer_up_to(self, tag: int, answer: Answer) -> None:
        for batch in self._batches:
            if batch.first_tag <= tag:
                batch.answer_before(min(tag + 1, batch.end_tag) - batch.first_tag, answer)
