"""Routes: what a closed one sends, holds back, and what opens it."""

import pytest

from outbox_relay.routes import Routes


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def routes(clock: Clock) -> Routes:
    return Routes(first_seconds=0.5, longest_seconds=60, clock=clock)


def admitted(routes: Routes, *, first: bool = False) -> str | float:
    return routes.admit("a", is_first_attempt=first)


def test_an_open_route_sends_everything(routes: Routes) -> None:
    assert admitted(routes) == admitted(routes, first=True) == "send"
    assert not routes


def test_a_route_that_does_not_confirm_holds_everything_back(routes: Routes) -> None:
    assert routes.unconfirmed("a")
    assert not routes.unconfirmed("a")
    assert admitted(routes) == admitted(routes, first=True) == 0.5
    assert routes.admit("b", is_first_attempt=True) == "send"


def test_a_route_that_refuses_holds_back_all_but_first_attempts(routes: Routes) -> None:
    assert routes.refused("a")
    assert admitted(routes, first=True) == "send"
    assert admitted(routes) == 0.5


def test_probes_are_one_at_a_time_and_ever_rarer(routes: Routes, clock: Clock) -> None:
    routes.refused("a")
    probes = 0
    for _ in range(3600 * 2):
        clock.now += 0.5
        probes += [admitted(routes) for _ in range(10)].count("probe")
    # After 0.5, 2, 8, 32, 128, 512 and then every 900 seconds.
    assert probes == 9


def test_first_attempts_take_the_place_of_probes(routes: Routes, clock: Clock) -> None:
    routes.refused("a")
    for _ in range(1000):
        clock.now += 0.4
        assert admitted(routes, first=True) == "send"
        assert admitted(routes) != "probe"
    clock.now += 1
    assert admitted(routes) == "probe"


def test_a_probe_that_cannot_be_sent_now_stays_due(routes: Routes, clock: Clock) -> None:
    routes.refused("a")
    clock.now += 1
    assert routes.admit("a", is_first_attempt=False, may_probe=False) == 1
    assert admitted(routes) == "probe"


def test_a_message_waits_as_long_again_as_its_route_has_been_closed(routes: Routes, clock: Clock) -> None:
    routes.unconfirmed("a")
    waits = []
    for seconds in (0.4, 10, 20, 600):
        clock.now = 1000 + seconds
        waits += [wait for wait in (admitted(routes), admitted(routes)) if not isinstance(wait, str)][-1:]
    assert waits == pytest.approx([0.5, 10, 20, 60])


def test_a_confirm_opens_the_route(routes: Routes) -> None:
    routes.refused("a")
    routes.unconfirmed("b")
    assert routes.confirmed(["c"]) == []
    assert routes.confirmed(["a", "a"]) == ["a"]
    assert admitted(routes) == "send"
    assert routes.is_closed("b")
    assert len(routes) == 1


def following(routes: Routes, most: int = 100) -> int:
    """How many messages that were refused before are sent now."""
    return [admitted(routes) for _ in range(most)].count("send")


def test_refused_messages_follow_a_few_at_a_time_until_one_is_refused_again(routes: Routes) -> None:
    routes.refused("a")
    routes.confirmed(["a"])
    for count in (2, 4, 8):
        assert following(routes) == count
        assert admitted(routes) == 0.5
        assert admitted(routes, first=True) == "send"
        assert routes.confirmed(["a"] * count) == []
    assert not len(routes)
    assert routes.refused("a")
    assert admitted(routes) == 0.5
    routes.confirmed(["a"])
    assert following(routes) == 2


KEYS = [f"order.{number}" for number in range(40)]


def probed(routes: Routes) -> list[str]:
    """The routes that send a probe now, each having a message that was refused before."""
    return [key for key in KEYS if routes.admit(key, is_first_attempt=False) == "probe"]


def test_routes_refused_together_take_turns_with_their_probes(routes: Routes, clock: Clock) -> None:
    for key in KEYS:
        routes.refused(key)
    rounds = []
    for seconds in (0.5, 2, 8, 32, 128, 512, 900, 900):
        clock.now += seconds
        rounds.append(probed(routes))
        for key in rounds[-1]:
            routes.refused(key)
    assert [len(keys) for keys in rounds] == [5] * 8
    assert sorted(key for keys in rounds for key in keys) == sorted(KEYS)


def test_routes_refused_together_follow_the_first_that_opens(routes: Routes, clock: Clock) -> None:
    for key in KEYS:
        routes.refused(key)
    clock.now += 600
    routes.confirmed(probed(routes)[:1])
    for count in (2, 4, 8):
        following = probed(routes)
        assert len(following) == count
        routes.confirmed(following)
    for key in probed(routes):
        routes.refused(key)
    assert probed(routes) == []
    clock.now += 0.5
    assert len(probed(routes)) == 1


def test_a_route_refused_later_does_not_wait_for_the_turns_of_others(routes: Routes, clock: Clock) -> None:
    for key in KEYS:
        routes.refused(key)
    clock.now += 2
    probed(routes)
    routes.refused("a")
    clock.now += 0.5
    assert admitted(routes) == "probe"


def test_one_message_follows_though_the_confirm_of_another_is_missing(routes: Routes, clock: Clock) -> None:
    routes.refused("a")
    routes.confirmed(["a"])
    following(routes)
    clock.now += 0.5
    assert following(routes) == 1


def test_a_route_that_has_opened_sends_everything_in_the_end(routes: Routes, clock: Clock) -> None:
    for key in "ab":
        routes.refused(key)
        routes.confirmed([key])
    routes.confirmed(["a"] * 500)
    assert following(routes) == 100
    assert routes
    clock.now += 60
    routes.confirmed(())
    assert not routes


def test_the_memory_of_closed_routes_is_bounded(routes: Routes) -> None:
    for number in range(10_001):
        routes.refused(f"order.{number}")
    assert len(routes) == 10_000
    assert not routes.is_closed("order.0")
    assert routes.is_closed("order.10000")
