"""What the fast path relies on in aiormq: each change is found, and leads to the plain path and a warning."""

import functools
import inspect
import logging
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import make_dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import CodeType
from typing import Any

import aiormq.abc
import pamqp.commands
import pamqp.frame
import pytest

from outbox_core import aiormq_internals, path_choice
from outbox_core.aiormq_requirements import (
    REQUIREMENTS,
    Behaves,
    Exists,
    Requirement,
    Takes,
    Uses,
    find,
    unmet,
)
from outbox_core.logs import TextFormatter

TAKES = [each for each in REQUIREMENTS if isinstance(each, Takes)]
BEHAVIOURS: dict[str, list[Callable[[pytest.MonkeyPatch], None]]] = {
    "aiormq.abc.ChannelFrame keeps its payload": [
        lambda patch: patch.delattr(aiormq.abc, "ChannelFrame"),
        lambda patch: patch.delattr(aiormq.abc.ChannelFrame, "should_drain"),
        lambda patch: patch.setattr(aiormq.abc.ChannelFrame, "should_drain", True),
    ],
    "aiormq.abc.ChannelFrame.marshall is read by pamqp.frame.unmarshal": [
        lambda patch: patch.delattr(aiormq.abc.ChannelFrame, "marshall"),
        lambda patch: patch.delattr(pamqp.frame, "unmarshal"),
        lambda patch: patch.setattr(pamqp.frame, "unmarshal", lambda whole: (7, whole)),
        lambda patch: patch.delattr(pamqp.commands.Channel, "Close"),
    ],
    "fields of pamqp's frames": [
        lambda patch: patch.delattr(pamqp.commands.Basic, "Ack"),
        lambda patch: patch.delattr(pamqp.commands.Basic, "Return"),
        lambda patch: patch.setattr(pamqp.commands.Connection, "Blocked", make_dataclass("Blocked", ["why"])),
    ],
}


@pytest.fixture
def undecided() -> Iterator[None]:
    """A process that has not chosen its path yet."""
    path_choice.fast_path.cache_clear()
    yield
    path_choice.fast_path.cache_clear()


def named(requirement: Requirement) -> str:
    return requirement.name


def owner(requirement: Exists | Takes) -> tuple[Any, str]:
    """The module or class that has what is required, and its name there."""
    path, _, name = requirement.path.rpartition(".")
    return (find(requirement.module, path) if path else import_module(requirement.module)), name


def renamed(code: CodeType, old: str) -> CodeType:
    """The same code with another name in the place of `old`."""
    names, variables = (
        tuple("another_name" if name == old else name for name in each)
        for each in (code.co_names, code.co_varnames)
    )
    return code.replace(co_names=names, co_varnames=variables)


def test_all_holds_in_the_aiormq_that_is_required() -> None:
    assert unmet() == []


@pytest.mark.parametrize("requirement", REQUIREMENTS, ids=named)
def test_what_is_removed_or_renamed_is_found(
    monkeypatch: pytest.MonkeyPatch, requirement: Requirement
) -> None:
    match requirement:
        case Exists() | Takes():
            monkeypatch.delattr(*owner(requirement))
        case Uses():
            found = inspect.unwrap(find(requirement.module, requirement.path))
            function = getattr(found, "__func__", found)
            monkeypatch.setattr(function, "__code__", renamed(function.__code__, requirement.used))
        case Behaves(name):
            BEHAVIOURS[name][0](monkeypatch)
    assert requirement.name in unmet()


@pytest.mark.parametrize("requirement", TAKES, ids=named)
def test_another_signature_is_found(monkeypatch: pytest.MonkeyPatch, requirement: Takes) -> None:
    async def other() -> None: ...

    monkeypatch.setattr(other, "__module__", requirement.module)
    monkeypatch.setattr(*owner(requirement), other)
    assert requirement.name in unmet()


@pytest.mark.parametrize("requirement", [each for each in TAKES if each.keywords], ids=named)
def test_an_option_that_is_merely_passed_on_is_found(
    monkeypatch: pytest.MonkeyPatch, requirement: Takes
) -> None:
    async def other(*_: object, **options: object) -> None: ...

    monkeypatch.setattr(other, "__module__", requirement.module)
    monkeypatch.setattr(*owner(requirement), other)
    assert requirement.name in unmet()


@pytest.mark.parametrize("requirement", [each for each in TAKES if each.is_awaited], ids=named)
def test_what_is_no_coroutine_any_more_is_found(monkeypatch: pytest.MonkeyPatch, requirement: Takes) -> None:
    own = find(requirement.module, requirement.path)

    @functools.wraps(own)
    def other(*arguments: Any, **options: Any) -> Any:
        return own(*arguments, **options)

    monkeypatch.setattr(*owner(requirement), other)
    assert requirement.name in unmet()


@pytest.mark.parametrize(
    ("name", "change"), [(name, change) for name, changes in BEHAVIOURS.items() for change in changes]
)
def test_another_behaviour_is_found(
    monkeypatch: pytest.MonkeyPatch, name: str, change: Callable[[pytest.MonkeyPatch], None]
) -> None:
    change(monkeypatch)
    assert name in unmet()


def test_a_module_that_is_gone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiormq.channel", None)
    assert {each.name for each in REQUIREMENTS if "aiormq.channel." in each.name} == set(unmet())


def test_every_private_name_that_is_used_is_checked() -> None:
    """Those of `aiormq_internals`, in which alone such names are."""
    [folder] = aiormq_internals.__path__
    sources = "".join(file.read_text() for file in Path(folder).glob("*.py"))
    used = set(re.findall(r"\b_(?:Connection|Channel)__\w+|(?<=\bown\.)_\w+", sources))
    assert len(used) >= 8
    checked = " ".join(each.name for each in REQUIREMENTS)
    assert {name for name in used if name not in checked} == set()


def test_an_unchanged_aiormq_is_used_silently(undecided: None, caplog: pytest.LogCaptureFixture) -> None:
    assert path_choice.fast_path() is not None
    assert caplog.records == []


def test_a_changed_aiormq_is_warned_of_once(
    undecided: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delattr(aiormq.abc, "ChannelFrame")
    assert [path_choice.fast_path() for _ in range(3)] == [None, None, None]
    [record] = caplog.records
    assert (record.name, record.levelno) == ("outbox.broker", logging.WARNING)
    line = TextFormatter().format(record)
    assert "one by one, more slowly" in line
    assert f"aiormq={version('aiormq')}" in line
    assert "aiormq.abc.ChannelFrame keeps its payload" in line
