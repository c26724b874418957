"""Progress: what counts as messages leaving the table."""

from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from outbox_core.backlog import Backlog
from outbox_relay.progress import Progress

FIRST, SECOND = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)


@dataclass(frozen=True)
class Look:
    at: float
    due: int
    oldest: datetime | None = FIRST
    settled: int = 0


@pytest.mark.parametrize(
    ("looks", "is_stalled"),
    [
        pytest.param([Look(0, 5), Look(40, 5)], True, id="nothing moves"),
        pytest.param([Look(0, 5), Look(15, 7), Look(40, 9)], True, id="it only grows"),
        pytest.param([Look(0, 5), Look(15, 5)], False, id="not for long"),
        pytest.param([Look(0, 5), Look(20, 5, settled=1), Look(40, 5, settled=1)], False, id="we move some"),
        pytest.param([Look(0, 5), Look(20, 4), Look(40, 4)], False, id="another replica moves some"),
        pytest.param([Look(0, 5), Look(20, 5, SECOND), Look(40, 5, SECOND)], False, id="another oldest row"),
        pytest.param([Look(0, 5), Look(20, 0, None), Look(40, 5)], False, id="nothing was due meanwhile"),
        pytest.param([Look(0, 5), Look(20, 5, settled=1), Look(60, 5, settled=1)], True, id="and then none"),
    ],
)
def test_rows_that_are_due_and_stay_are_a_problem(looks: list[Look], is_stalled: bool) -> None:
    progress = Progress()
    for look in looks:
        problem = progress.measured(Backlog(look.due, 0.0, 0, look.oldest), look.settled, look.at)
    assert (problem is not None) is is_stalled


def test_the_problem_names_the_numbers() -> None:
    progress = Progress()
    assert progress.measured(Backlog(3, 0.0, 0, FIRST), 0, 100) is None
    problem = progress.measured(Backlog(4, 0.0, 0, FIRST), 0, 145)
    assert problem is not None
    assert problem.startswith("4 messages are due, and none has been sent for 45 s;")
