"""Who may write, and for how long."""

import pytest

from outbox_operator.cluster.errors import NotLeaderError
from outbox_operator.cluster.fence import Fence, uptime


class _Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_nobody_passes_before_the_lease_is_held() -> None:
    fence = Fence(8)
    assert not fence.is_open
    with pytest.raises(NotLeaderError, match="this process does not lead"):
        fence.check()


def test_a_write_may_take_what_is_left_since_the_renewal_began() -> None:
    clock = _Clock()
    fence = Fence(8, clock)
    fence.open(since=clock.now - 3)
    assert fence.is_open
    assert fence.check() == 5


def test_a_lease_that_was_not_renewed_in_time_stops_all_writes() -> None:
    clock = _Clock()
    fence = Fence(8, clock)
    fence.open(since=clock.now)
    clock.now += 8
    assert not fence.is_open
    with pytest.raises(NotLeaderError, match="was not renewed for 8 s; another replica takes over"):
        fence.check()


def test_a_renewal_after_that_lets_writes_pass_again() -> None:
    clock = _Clock()
    fence = Fence(8, clock)
    fence.open(since=clock.now)
    clock.now += 20
    fence.open(since=clock.now)
    assert fence.check() == 8


def test_whoever_gives_the_lease_back_writes_no_more() -> None:
    clock = _Clock()
    fence = Fence(8, clock)
    fence.open(since=clock.now)
    fence.close()
    with pytest.raises(NotLeaderError):
        fence.check()


def test_the_clock_does_not_go_back() -> None:
    assert uptime() <= uptime()
