"""How long a listener without its relay says nothing."""

from outbox_operator.reconciling.arrivals import Arrivals
from outbox_operator.resources.metadata import Metadata


class _Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def _named(name: str, namespace: str = "shop") -> Metadata:
    return Metadata(name=name, namespace=namespace)


def test_a_listener_that_comes_alone_waits_a_little() -> None:
    clock = _Clock()
    arrivals = Arrivals(clock)
    assert arrivals.patience_seconds(_named("a")) == 2
    clock.now += 1.5
    assert arrivals.patience_seconds(_named("a")) == 0.5
    clock.now += 0.5
    assert arrivals.patience_seconds(_named("a")) == 0


def test_it_waits_on_while_others_come() -> None:
    clock = _Clock()
    arrivals = Arrivals(clock)
    for number in range(5):
        arrivals.patience_seconds(_named(f"listener-{number}"))
        clock.now += 1
    assert arrivals.patience_seconds(_named("listener-0")) == 1


def test_but_not_for_ever() -> None:
    clock = _Clock()
    arrivals = Arrivals(clock)
    arrivals.patience_seconds(_named("first"))
    for number in range(30):
        clock.now += 1
        arrivals.patience_seconds(_named(f"listener-{number}"))
    assert arrivals.patience_seconds(_named("first")) == 0
    assert arrivals.patience_seconds(_named("listener-29")) == 2


def test_who_comes_elsewhere_does_not_matter() -> None:
    clock = _Clock()
    arrivals = Arrivals(clock)
    arrivals.patience_seconds(_named("a"))
    clock.now += 2
    arrivals.patience_seconds(_named("a", "elsewhere"))
    assert arrivals.patience_seconds(_named("a")) == 0


def test_one_that_is_made_anew_waits_anew() -> None:
    clock = _Clock()
    arrivals = Arrivals(clock)
    arrivals.patience_seconds(_named("a"))
    clock.now += 5
    arrivals.forget("shop/a")
    assert arrivals.patience_seconds(_named("a")) == 2
