"""Real signals, sent to a real process that runs on each kind of event loop."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from outbox_core import loop
from outbox_core.signals import Shutdown

_DEADLINE_SECONDS = 60

PROGRAM = """
import asyncio, signal, sys, time
from outbox_core import loop
from outbox_core.signals import Shutdown

def say(word):
    print(word, flush=True)

async def main(scenario):
    try:
        callback = (lambda: say("second")) if scenario == "callback" else None
        with Shutdown(on_second=callback) as shutdown:
            say("ready")
            await shutdown.requested.wait()
            say("requested")
            if scenario == "finish":
                return
            try:
                await asyncio.Event().wait()
            finally:
                say("cancelled")
                if scenario == "hang":
                    time.sleep(3600)
    finally:
        say("restored" if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL else "left behind")

run = asyncio.run if sys.argv[1] == "asyncio" else loop.run
run(main(sys.argv[2]))
say("end")
"""


class Process:
    """A program that tells on its standard output how far it is."""

    def __init__(self, child: "subprocess.Popen[str]") -> None:
        self._child = child

    def says(self, word: str) -> None:
        assert self._child.stdout is not None
        assert self._child.stdout.readline().strip() == word

    def receives(self, number: signal.Signals) -> None:
        os.kill(self._child.pid, number)

    def leaves(self) -> tuple[int, str]:
        assert self._child.stdout is not None
        # Not communicate(), which does not see what readline() has read ahead.
        output = self._child.stdout.read()
        return self._child.wait(_DEADLINE_SECONDS), output


Start = Callable[[str], Process]


@pytest.fixture(params=["asyncio", "uvloop"])
def start(request: pytest.FixtureRequest) -> Iterator[Start]:
    if request.param == "uvloop":
        pytest.importorskip("uvloop")
    with ExitStack() as stack:

        def start(scenario: str) -> Process:
            command = [sys.executable, "-c", PROGRAM, request.param, scenario]
            child = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
            stack.callback(child.kill)
            # A child that says nothing is killed, which ends its output and fails the test.
            watchdog = threading.Timer(_DEADLINE_SECONDS, child.kill)
            watchdog.start()
            stack.callback(watchdog.cancel)
            return Process(child)

        yield start


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_asks_to_finish(start: Start, number: signal.Signals) -> None:
    process = start("finish")
    process.says("ready")
    process.receives(number)
    process.says("requested")
    assert process.leaves() == (0, "restored\nend\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_second_signal_cancels_and_leaves_with_the_shells_status(
    start: Start, number: signal.Signals
) -> None:
    process = start("wait")
    process.says("ready")
    process.receives(number)
    process.says("requested")
    process.receives(number)
    assert process.leaves() == (128 + number, "cancelled\nrestored\n")


def test_the_third_signal_kills_a_process_that_hangs_while_leaving(start: Start) -> None:
    process = start("hang")
    process.says("ready")
    process.receives(signal.SIGTERM)
    process.says("requested")
    process.receives(signal.SIGTERM)
    process.says("cancelled")
    process.receives(signal.SIGTERM)
    assert process.leaves() == (-signal.SIGTERM, "")


def test_the_second_signal_calls_what_it_was_given_instead(start: Start) -> None:
    process = start("callback")
    process.says("ready")
    process.receives(signal.SIGTERM)
    process.says("requested")
    process.receives(signal.SIGINT)
    process.says("second")


async def test_earlier_handlers_are_put_back() -> None:
    def handler(_number: int, _frame: object) -> None:
        raise AssertionError("not sent in this test")

    before = signal.signal(signal.SIGTERM, handler)
    try:
        with Shutdown():
            assert signal.getsignal(signal.SIGTERM) is not handler
        assert signal.getsignal(signal.SIGTERM) is handler
    finally:
        signal.signal(signal.SIGTERM, before)


async def test_off_the_main_thread_it_does_nothing() -> None:
    async def main() -> bool:
        with Shutdown() as shutdown:
            return shutdown.requested.is_set()

    before = signal.getsignal(signal.SIGTERM)
    assert await asyncio.to_thread(asyncio.run, main()) is False
    assert signal.getsignal(signal.SIGTERM) is before


def test_run_takes_uvloop_where_it_is_installed() -> None:
    uvloop = pytest.importorskip("uvloop")

    async def main() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    assert isinstance(loop.run(main()), uvloop.Loop)


def test_run_takes_asyncio_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)

    async def main() -> str:
        return type(asyncio.get_running_loop()).__module__

    assert loop.run(main()).startswith("asyncio")
