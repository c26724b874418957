import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from outbox_worker import WorkerError
from outbox_worker.loading import load

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
