"""Which routing keys have a queue that does not answer, told from the answers to a batch."""

from collections.abc import Sequence

import pytest

from outbox_core.broker_errors import BrokerLostError
from outbox_core.publisher import CONFIRMED, NACKED, Answers, Message, Outcome, Unencodable
from outbox_relay.sending import Sending, send_singly, unanswered_routes

YES, NO, BAD = CONFIRMED, None, Unencodable("too large")


@pytest.mark.parametrize(
    ("outcomes", "is_current", "stuck"),
    [
        pytest.param([YES, YES, YES, YES], True, "", id="all answered"),
        pytest.param([YES, NO, YES, YES], True, "b", id="passed over by a later one"),
        pytest.param([YES, NO, NACKED, YES], True, "b", id="a refusal is an answer"),
        pytest.param([YES, NO, YES, NO], True, "b", id="those behind may not have been read"),
        pytest.param([YES, YES, NO, NO], True, "cd", id="any of those at the end"),
        pytest.param([NO, NO, NO, NO], True, "abcd", id="none answered"),
        pytest.param([NO, NO, BAD, NO], True, "abd", id="what was not sent is no answer"),
        pytest.param([NO, NO, NO, NO], False, "", id="on a connection known to be stuck"),
        pytest.param([NO, YES, NO, NO], False, "a", id="there too one that was passed over"),
    ],
)
def test_the_routes_of_a_stuck_queue(outcomes: list[Outcome | None], is_current: bool, stuck: str) -> None:
    assert unanswered_routes("abcd", outcomes, is_current=is_current) == frozenset(stuck)


class LostAfterOne:
    """A publisher whose channel is lost behind the first answer."""

    is_usable = True
    transport = None
    has_sent = False

    async def send(
        self,
        exchange: str,
        messages: Sequence[Message],
        timeout: float,  # noqa: ASYNC109 - the signature of a publisher
        stall_seconds: float | None = None,
    ) -> Answers:
        if self.has_sent:
            raise BrokerLostError("the channel to the broker is gone")
        self.has_sent = True
        answers: Answers = Sending([CONFIRMED], [None])
        return answers

    async def publish(self, exchange: str, messages: Sequence[Message], timeout: float) -> list[Outcome]:  # noqa: ASYNC109 - as above
        raise NotImplementedError

    async def aclose(self) -> None:
        raise NotImplementedError


async def test_what_was_confirmed_one_by_one_is_known_when_the_channel_is_lost() -> None:
    messages = [Message(key, b"") for key in "abc"]
    sending = await send_singly(LostAfterOne(), "outbox", messages, longest_seconds=30)
    assert sending.outcomes == [CONFIRMED, None, None]
    assert isinstance(sending.lost, BrokerLostError)
