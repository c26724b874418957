import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from outbox import Exponential, Listener, NoRetry
from outbox_worker import WorkerError
from outbox_worker.loading import load, overridden
from outbox_worker.settings import Override

MODULE = """
from outbox import listen, Listener

@listen("user.created")
async def on_user(user): ...

@listen("order.created")
def on_order(order): ...

both = [on_user, on_order]
mixed = [on_user, 7]
number = 7
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package of an application, importable for one test."""
    package = tmp_path / "shop_of_a_test"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "listeners.py").write_text(MODULE)
    (package / "empty.py").touch()
    (package / "broken.py").write_text("import missing_in_a_test")
    (package / "failing.py").write_text("raise ValueError('at import')")
    monkeypatch.syspath_prepend(tmp_path)
    yield "shop_of_a_test"
    for name in [name for name in sys.modules if name.startswith("shop_of_a_test")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        (["{}.listeners"], ["on_user", "on_order"]),
        (["{}.listeners:on_order"], ["on_order"]),
        (["{}.listeners:both"], ["on_user", "on_order"]),
        (["{}.listeners:on_order", "{}.listeners"], ["on_order", "on_user"]),
    ],
)
def test_listeners_are_found_each_once(shop: str, targets: list[str], expected: list[str]) -> None:
    found = load(target.format(shop) for target in targets)
    assert [listener.callback.__name__ for listener in found] == expected


@pytest.mark.parametrize(
    ("target", "complaint"),
    [
        ("{}.elsewhere", "there is no module '{}.elsewhere'; run from the folder that has it"),
        ("nowhere_at_all", "there is no module 'nowhere_at_all'"),
        ("{}.listeners:on_usr", "there is no such name; the module's listeners are: on_order, on_user"),
        (
            "{}.listeners:number",
            "it is no listener and no list of them; the module's listeners are: on_",
        ),
        ("{}.listeners:mixed", "it is no listener and no list of them"),
        ("{}.empty", "the module has no listener; decorate a function with @listen"),
        ("{}.empty:name", "there is no such name; the module's listeners are: none"),
        ("{}.broken", "the module cannot be imported: No module named 'missing_in_a_test'"),
        ("{}.failing", "the module cannot be imported: ValueError: at import"),
        ("{}/listeners.py", "write a module's dotted name"),
        ("", "write a module's dotted name"),
    ],
)
def test_what_is_not_there_is_named_with_what_is(shop: str, target: str, complaint: str) -> None:
    with pytest.raises(WorkerError) as raised:
        load([target.format(shop)])
    assert complaint.format(shop) in str(raised.value)
    assert str(raised.value).startswith(target.format(shop))


async def handler(body: Any) -> None: ...


TRANSIENT = Exponential(1, jitter=0.2, only=(ConnectionError, TimeoutError))


def test_the_one_listener_gets_the_queue_and_keeps_what_is_not_said() -> None:
    own = Listener("user.*", handler, "own", TRANSIENT, ordered=True, deduplicate=True)
    made = overridden([own], Override(queue="shop.mails"))
    assert made == Listener("user.*", handler, "shop.mails", TRANSIENT, ordered=True, deduplicate=True)
    assert own.queue == "own"


@pytest.mark.parametrize("own", [None, (1, 10), NoRetry(), TRANSIENT])
@pytest.mark.parametrize("delays", [(), (0.3, 60)])
def test_delays_from_outside_win_over_every_kind_of_own_ones(own: Any, delays: tuple[float, ...]) -> None:
    made = overridden([Listener("a", handler, "own", own)], Override(queue="q", retry_delays=delays))
    policy = made.policy(NoRetry())
    assert policy.delays() == tuple(timedelta(seconds=delay) for delay in delays)
    assert policy.tiers() == policy.delays()


def test_the_exceptions_worth_a_retry_are_still_those_of_the_code() -> None:
    made = overridden([Listener("a", handler, "own", TRANSIENT)], Override(queue="q", retry_delays=(5,)))
    policy = made.policy(NoRetry())
    assert policy.next_delay(1, TimeoutError()) == timedelta(seconds=5)
    assert policy.next_delay(1, ValueError()) is None


@pytest.mark.parametrize(("own", "said", "is_ordered"), [(False, True, True), (True, False, False)])
def test_the_order_from_outside_wins(own: bool, said: bool, is_ordered: bool) -> None:
    made = overridden([Listener("a", handler, "own", ordered=own)], Override(queue="q", ordered=said))
    assert made.ordered is is_ordered


def test_one_queue_is_for_one_listener_and_those_found_are_named(shop: str) -> None:
    with pytest.raises(WorkerError) as raised:
        overridden(load([f"{shop}.listeners"]), Override(queue="shop.mails"))
    assert str(raised.value) == (
        f"queue 'shop.mails' is for one listener, and there are 2: {shop}.listeners:on_user, "
        f"{shop}.listeners:on_order; name one as module:function"
    )


def test_a_queue_that_cannot_be_is_refused_with_the_functions_name() -> None:
    with pytest.raises(ValueError, match=r"handler.*queue 'amq\.mine': names that start with 'amq\.'"):
        overridden([Listener("a", handler, "own")], Override(queue="amq.mine"))
