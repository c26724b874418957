"""Processes that start quickly, because they are forked from one that has imported everything already."""

import multiprocessing
import os
import runpy
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkServerContext
from typing import Any, cast

from tests.chaos.process import Child, Process

# Not their `__main__`, which is run in each process anew.
_PRELOADED = [
    "uvloop",
    "outbox_core.loop",
    "outbox_core.probes",
    "outbox_worker",
    "outbox_worker.asyncpg_transactions",
    "tests.chaos.listeners",
]


class Forked(Process):
    """As `Process`: in all but its birth there is no difference."""

    def _born(self, command: Sequence[str], environment: Mapping[str, str]) -> Child:
        # Before the child does: it may be killed at once.
        self._log.touch()
        return _ForkedChild(command, environment, str(self._log))


class _ForkedChild:
    """A process of `multiprocessing`, with the face of a `subprocess.Popen`."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: str) -> None:
        self._process = _context().Process(
            target=_become, args=(list(command), dict(environment), log), daemon=True
        )
        self._process.start()

    @property
    def pid(self) -> int:
        return cast("int", self._process.pid)

    def poll(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, sig: int, /) -> None:
        # As Popen does: not to a pid that may be somebody else's by now.
        if self.poll() is None:
            os.kill(self.pid, sig)

    def kill(self) -> None:
        self._process.kill()

    def wait(self) -> int:
        self._process.join()
        return cast("int", self._process.exitcode)


def _context() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context


def _become(command: list[str], environment: dict[str, str], log: str) -> Any:
    """In the child: be `python -m command`, with its own environment and output."""
    output = os.open(log, os.O_WRONLY | os.O_APPEND)
    for standard in (sys.stdout, sys.stderr):
        standard.flush()
        os.dup2(output, standard.fileno())
    for name in [name for name in os.environ if name.startswith("OUTBOX_")]:
        del os.environ[name]
    os.environ.update(environment)

    module, *sys.argv[1:] = command
    runpy.run_module(module, run_name="__main__", alter_sys=True)
