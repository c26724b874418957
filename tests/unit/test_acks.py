"""Settled deliveries: told to a broker, they are each settled as was asked, and nothing else is."""

from dataclasses import dataclass, field
from functools import cache

from hypothesis import given
from hypothesis import strategies as st

from outbox_core.acks import Acks, Settlement, Verdict

ACK, REQUEUE, DEAD_LETTER = Verdict.ACK, Verdict.REQUEUE, Verdict.DEAD_LETTER


@dataclass
class Broker:
    """What RabbitMQ makes of the frames, as one that closes the channel over a tag it does not know."""

    outstanding: list[int] = field(default_factory=list)
    settled: dict[int, Verdict] = field(default_factory=dict)

    def apply(self, settlement: Settlement) -> None:
        assert settlement.tag in self.outstanding, f"unknown delivery tag {settlement.tag}"
        tags = [tag for tag in self.outstanding if tag <= settlement.tag] if settlement.multiple else []
        for tag in tags or [settlement.tag]:
            self.outstanding.remove(tag)
            self.settled[tag] = settlement.verdict


@cache
def delivery(tag: int) -> object:
    """The one that has this tag."""
    return object()


def delivered(count: int) -> Acks:
    acks = Acks()
    for tag in range(1, count + 1):
        acks.deliver(tag, delivery(tag))
    return acks


def settle(acks: Acks, tag: int, verdict: Verdict = ACK) -> bool:
    return acks.settle(tag, delivery(tag), verdict)


@given(data=st.data(), count=st.integers(1, 30))
def test_the_broker_ends_up_with_what_was_asked(data: st.DataObject, count: int) -> None:
    """Deliveries, verdicts and frames in any order that can be."""
    acks, broker, asked = Acks(), Broker(), dict[int, Verdict]()
    order = data.draw(st.permutations(range(1, count + 1)))
    for step in order:
        while len(broker.outstanding) + len(broker.settled) < step:
            tag = len(broker.outstanding) + len(broker.settled) + 1
            acks.deliver(tag, delivery(tag))
            broker.outstanding.append(tag)
        if data.draw(st.booleans()):
            asked[step] = data.draw(st.sampled_from([ACK, ACK, ACK, REQUEUE, DEAD_LETTER]))
            assert settle(acks, step, asked[step])
            assert not settle(acks, step, data.draw(st.sampled_from(Verdict)))
        if data.draw(st.booleans()):
            for settlement in acks.take():
                broker.apply(settlement)
            assert broker.settled == asked
        assert acks.unsettled == len(broker.outstanding) + len(broker.settled) - len(asked)
    for settlement in acks.take():
        broker.apply(settlement)

    assert broker.settled == asked
    assert acks.take() == []
    assert not acks.is_waiting


def test_all_that_lead_are_acked_in_one_frame() -> None:
    acks = delivered(100)
    for tag in range(60, 0, -1):
        settle(acks, tag)
    assert acks.is_waiting
    assert acks.take() == [Settlement(60, ACK, multiple=True)]
    assert not acks.is_waiting


def test_what_is_behind_an_unsettled_delivery_is_acked_by_itself() -> None:
    acks = delivered(6)
    for tag in (6, 1, 2, 4):
        settle(acks, tag)
    assert acks.take() == [Settlement(2, ACK, multiple=True), Settlement(6, ACK), Settlement(4, ACK)]

    settle(acks, 3)
    settle(acks, 5)
    assert acks.take() == [Settlement(5, ACK, multiple=True)]


def test_a_single_ack_is_not_multiple() -> None:
    acks = delivered(2)
    settle(acks, 1)
    assert acks.take() == [Settlement(1, ACK)]


def test_rejections_go_first_so_that_an_ack_of_all_does_not_mean_them() -> None:
    acks = delivered(4)
    settle(acks, 1)
    settle(acks, 2, REQUEUE)
    settle(acks, 3, DEAD_LETTER)
    settle(acks, 4)
    assert acks.take() == [
        Settlement(2, REQUEUE),
        Settlement(3, DEAD_LETTER),
        Settlement(4, ACK, multiple=True),
    ]


def test_a_delivery_is_settled_once() -> None:
    acks = delivered(2)
    assert settle(acks, 1)
    assert not settle(acks, 1)
    assert acks.take() == [Settlement(1, ACK)]
    assert not settle(acks, 1, REQUEUE)
    assert acks.take() == []


def test_a_delivery_of_another_channel_with_the_same_tag_is_not_settled() -> None:
    acks = delivered(1)
    assert not acks.settle(1, object(), ACK)
    assert not settle(acks, 7)
    assert (acks.unsettled, acks.take()) == (1, [])


def test_what_is_held_stays_with_the_broker_and_is_not_covered_by_acks() -> None:
    acks = delivered(5)
    assert acks.hold(3, delivery(3))
    assert not acks.hold(3, delivery(3))
    assert not settle(acks, 3)
    for tag in (1, 2, 4, 5):
        settle(acks, tag)
    assert acks.take() == [Settlement(2, ACK, multiple=True), Settlement(4, ACK), Settlement(5, ACK)]
    assert acks.unsettled == 1
