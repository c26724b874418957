"""Processes that run for resources: real ones, which wait to be asked to finish."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from outbox_cli.dev.containers import Program
from outbox_cli.dev.crew import Crew, surroundings
from outbox_cli.dev.happenings import Happening

PATIENT = """
import os, signal
# Blocked and awaited: a handler could run before `signal.pause()`, which would then wait for ever.
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
print("began", os.getpid(), os.environ.get("COLOUR"), flush=True)
signal.sigwait([signal.SIGTERM])
print("finished", flush=True)
"""
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("began", flush=True)
time.sleep(3600)
"""
_DEADLINE_SECONDS = 60


class Ledger:
    """What the processes of a crew have said."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._news = asyncio.Event()

    def note(self, happening: Happening) -> None:
        self.lines.append(f"{happening.source}: {happening.text}")
        self._news.set()

    async def until(self, condition: Callable[[list[str]], bool], what: str) -> None:
        try:
            async with asyncio.timeout(_DEADLINE_SECONDS):
                while not condition(self.lines):
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            pytest.fail(f"waited {_DEADLINE_SECONDS} s for {what}: {self.lines}")

    def count(self, text: str) -> int:
        return sum(text in line for line in self.lines)


@asynccontextmanager
async def crew_of(folder: Path, ledger: Ledger) -> AsyncIterator[Crew]:
    async with asyncio.TaskGroup() as group:
        crew = Crew(group, surroundings(os.environ, [folder]), ledger.note)
        yield crew
        crew.stop()


def program(code: str = PATIENT, colour: str = "red", shutdown_seconds: float = 30) -> Program:
    return Program(("-c", code), {"COLOUR": colour}, shutdown_seconds)


async def test_processes_begin_and_are_asked_to_finish(tmp_path: Path) -> None:
    ledger = Ledger()
    async with crew_of(tmp_path, ledger) as crew:
        crew.want("shop", program(), 2)
        await ledger.until(lambda _: ledger.count("shop: began") == 2, "two processes")
    assert ledger.count("shop: finished") == 2


async def test_only_what_has_changed_begins_anew(tmp_path: Path) -> None:
    ledger = Ledger()
    async with crew_of(tmp_path, ledger) as crew:
        crew.want("shop", program(), 1)
        crew.want("other", program(), 1)
        await ledger.until(lambda _: ledger.count("began") == 2, "two processes")
        crew.want("shop", program(), 1)
        crew.want("other", program(colour="blue"), 1)
        await ledger.until(lambda _: ledger.count("blue") == 1, "the one that has changed")
        assert ledger.lines.index("other: finished") < len(ledger.lines) - 1
        assert ledger.count("shop: began") == 1


async def test_too_many_are_asked_to_finish_and_the_others_stay(tmp_path: Path) -> None:
    ledger = Ledger()
    async with crew_of(tmp_path, ledger) as crew:
        crew.want("shop", program(), 3)
        await ledger.until(lambda _: ledger.count("began") == 3, "three processes")
        crew.want("shop", program(), 1)
        await ledger.until(lambda _: ledger.count("finished") == 2, "two to finish")
    assert ledger.count("began") == 3


async def test_one_that_ends_is_started_again_and_its_last_words_are_known(tmp_path: Path) -> None:
    ledger = Ledger()
    async with crew_of(tmp_path, ledger) as crew:
        crew.want("shop", program("raise SystemExit('no shop today')"), 1)
        await ledger.until(lambda _: ledger.count("no shop today") == 2, "a second try")
        [child] = crew.of("shop")
        assert child.crash is not None
        assert (child.crash.status, child.crash.words) == (1, "no shop today")


async def test_an_edit_starts_one_that_has_ended_at_once(tmp_path: Path) -> None:
    ledger = Ledger()
    async with crew_of(tmp_path, ledger) as crew:
        crew.want("shop", program("import later"), 1)
        await ledger.until(lambda _: ledger.count("No module named") == 1, "the first try")
        (tmp_path / "later.py").write_text(PATIENT)
        crew.restart("shop")
        await ledger.until(lambda _: ledger.count("began") == 1, "the second try")


@pytest.mark.parametrize("in_order", [True, False])
async def test_one_that_does_not_finish_is_killed(tmp_path: Path, in_order: bool) -> None:
    """After its time, or at once where that is asked for."""
    ledger = Ledger()
    async with crew_of(tmp_path, ledger) as crew:
        # Some seconds are added to it.
        crew.want("shop", program(STUBBORN, shutdown_seconds=-5 if in_order else 3600), 1)
        await ledger.until(lambda _: ledger.count("began") == 1, "the process")
        if not in_order:
            crew.kill()
