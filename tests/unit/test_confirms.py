"""Confirms: in whatever way the broker answers, each message gets its own answer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox_core.confirms import Answer, Batch, Confirms
from outbox_core.publisher import CONFIRMED, NACKED, Message, Outcome, Returned

NO_ROUTE = Returned(312, "NO_ROUTE")


def messages(*ids: str, routing_key: str = "k") -> list[Message]:
    return [Message(routing_key=routing_key, body=b"", message_id=id_, timestamp=0) for id_ in ids]


class Channel:
    """Batches of these sizes on one channel, and which of them are complete."""

    def __init__(self, *sizes: int) -> None:
        self.confirms = Confirms()
        self.complete: list[int] = []
        self.batches = [self._add(number, size) for number, size in enumerate(sizes)]

    def _add(self, number: int, size: int) -> Batch:
        ids = (f"{number}-{index}" for index in range(size))
        return self.confirms.add(messages(*ids), lambda: self.complete.append(number))

    def ack(self, tag: int, *, multiple: bool = False) -> None:
        self.confirms.answer(tag, multiple=multiple, answer=CONFIRMED)

    def nack(self, tag: int, *, multiple: bool = False) -> None:
        self.confirms.answer(tag, multiple=multiple, answer=NACKED)


def test_a_batch_is_complete_with_its_last_answer_and_only_once() -> None:
    channel = Channel(2)

    channel.ack(2)
    assert channel.complete == []
    channel.ack(2)
    assert channel.complete == []
    channel.ack(1)
    channel.ack(1)
    assert channel.complete == [0]


def test_multiple_answers_for_all_up_to_the_tag_that_have_none() -> None:
    channel = Channel(3, 2)

    channel.nack(2)
    channel.ack(4, multiple=True)
    assert channel.complete == [0]
    assert channel.batches[0].outcomes == [CONFIRMED, NACKED, CONFIRMED]
    channel.nack(5, multiple=True)
    assert channel.batches[1].outcomes == [CONFIRMED, NACKED]


def test_a_multiple_of_tag_0_answers_for_everything() -> None:
    channel = Channel(2, 2)
    channel.ack(0, multiple=True)
    assert channel.complete == [0, 1]


def test_an_answer_for_no_message_changes_nothing() -> None:
    channel = Channel(1)
    channel.ack(2)
    channel.ack(0)
    assert channel.complete == []


@pytest.mark.parametrize("multiple", [False, True])
def test_a_returned_message_is_not_confirmed_by_its_confirm(multiple: bool) -> None:
    channel = Channel(3)

    channel.confirms.note_return("0-1", "k", NO_ROUTE)
    for tag in [3] if multiple else [1, 2, 3]:
        channel.ack(tag, multiple=multiple)

    assert channel.batches[0].outcomes == [CONFIRMED, NO_ROUTE, CONFIRMED]


def test_of_two_with_one_id_the_routing_key_says_which_came_back() -> None:
    confirms = Confirms()
    batch = confirms.add(messages("a") + messages("a", routing_key="nowhere"), lambda: None)

    confirms.note_return("a", "nowhere", NO_ROUTE)
    confirms.answer(2, multiple=True, answer=CONFIRMED)

    assert batch.outcomes == [CONFIRMED, NO_ROUTE]


def test_where_nothing_says_which_came_back_both_did() -> None:
    confirms = Confirms()
    first, second = (confirms.add(messages("a", "b"), lambda: None) for _ in range(2))

    confirms.note_return("a", "k", NO_ROUTE)
    confirms.answer(4, multiple=True, answer=CONFIRMED)

    assert first.outcomes == second.outcomes == [NO_ROUTE, CONFIRMED]


def test_one_that_was_confirmed_before_cannot_be_the_one_that_came_back() -> None:
    confirms = Confirms()
    batch = confirms.add(messages("a", "a"), lambda: None)

    confirms.answer(1, multiple=False, answer=CONFIRMED)
    confirms.note_return("a", "k", NO_ROUTE)
    confirms.answer(2, multiple=False, answer=CONFIRMED)

    assert batch.outcomes == [CONFIRMED, NO_ROUTE]


answers = st.tuples(st.integers(0, 12), st.booleans(), st.sampled_from([CONFIRMED, NACKED]))


@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4), given_answers=st.lists(answers, max_size=30)
)
def test_any_sequence_of_answers_comes_to_the_same_as_noting_each_tag(
    sizes: list[int], given_answers: list[tuple[int, bool, Answer]]
) -> None:
    channel, total = Channel(*sizes), sum(sizes)
    noted: dict[int, Outcome] = {}
    for tag, multiple, answer in [*given_answers, (total, True, CONFIRMED)]:
        channel.confirms.answer(tag, multiple=multiple, answer=answer)
        for each in range(1, (tag or total) + 1) if multiple else [tag]:
            noted.setdefault(each, answer)

    outcomes = [outcome for batch in channel.batches for outcome in batch.outcomes]
    assert outcomes == [noted[tag] for tag in range(1, total + 1)]
    assert sorted(channel.complete) == list(range(len(sizes)))
