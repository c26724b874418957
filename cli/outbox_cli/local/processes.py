"""Processes as they are in /proc: who is alive, who descends from whom, and ending them for certain.

Without /proc (macOS) a process is known by its pid alone, and descendants are not looked for.
"""

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from outbox_cli.local.errors import LocalServiceError

_PROC = Path("/proc")
_POLL_SECONDS = 0.02


@dataclass(frozen=True)
class Process:
    """One process, told apart from a later one that got the same pid."""

    pid: int
    started: int | None
    """Clock ticks from the boot to its start; None where there is no /proc."""


@dataclass(frozen=True)
class _Entry:
    process: Process
    parent: int
    has_terminal: bool


def current() -> Process:
    """This process."""
    found = find(os.getpid())
    assert found is not None  # noqa: S101 - the process that asks is alive
    return found


def find(pid: int) -> Process | None:
    """The living process with this pid, if there is one."""
    if _PROC.joinpath("self").exists():
        entry = _read(pid)
        return entry.process if entry else None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return Process(pid, None)


def is_alive(process: Process) -> bool:
    """Whether it still runs: the same process, not merely the same pid, and not a zombie."""
    return find(process.pid) == process


def family(roots: Iterable[Process]) -> set[Process]:
    """The living among these processes, and all their descendants.

    Descendants rather than process groups: Postgres's backends and Erlang's helpers each make their own.
    """
    entries = _everything()
    members = {root for root in roots if is_alive(root)}
    while True:
        pids = {member.pid for member in members}
        children = {entry.process for entry in entries if entry.parent in pids} - members
        if not children:
            return members
        members |= children


def inside(folder: Path) -> set[Process]:
    """Processes that work inside a folder: those whose parent died before anybody wrote down their pid.

    A process with a terminal is left out: it is a person having a look.
    """
    return {
        entry.process
        for entry in _everything()
        if not entry.has_terminal and _works_inside(entry.process.pid, folder)
    }


def end(members: Iterable[Process], grace_seconds: float = 0.0) -> None:
    """Wait for processes to end by themselves for the time of grace, then kill what is left."""
    left = _wait(set(members), grace_seconds)
    for process in left:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    if left := _wait(left, seconds=10):
        pids = ", ".join(str(process.pid) for process in left)
        raise LocalServiceError(f"processes {pids} survive SIGKILL; look at them with ps")


def _wait(members: set[Process], seconds: float) -> set[Process]:
    deadline = time.monotonic() + seconds
    while True:
        members = {process for process in members if is_alive(process)}
        if not members or time.monotonic() >= deadline:
            return members
        time.sleep(_POLL_SECONDS)


def _everything() -> list[_Entry]:
    pids = [int(path.name) for path in _PROC.glob("[0-9]*")]
    return [entry for pid in pids if (entry := _read(pid))]


def _read(pid: int) -> _Entry | None:
    try:
        stat = _PROC.joinpath(str(pid), "stat").read_text(errors="replace")
    except OSError:
        return None
    # The name, in parentheses, may itself contain spaces and parentheses; see proc(5).
    fields = stat.rpartition(")")[2].split()
    state, parent, terminal, started = fields[0], int(fields[1]), int(fields[4]), int(fields[19])
    if state in "ZX":
        return None
    return _Entry(Process(pid, started), parent, has_terminal=terminal != 0)


def _works_inside(pid: int, folder: Path) -> bool:
    try:
        return _PROC.joinpath(str(pid), "cwd").readlink().is_relative_to(folder)
    except OSError:
        return False
