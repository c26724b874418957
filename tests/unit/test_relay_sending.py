"""Which routing keys have a queue that does not answer, told from the answers to a batch."""

import pytest

from outbox_core.publisher import CONFIRMED, NACKED, Outcome, Unencodable
from outbox_relay.sending import unanswered_routes

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
