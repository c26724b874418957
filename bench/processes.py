"""The processes of a measurement: started, watched through /proc, and ended."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_STOP_SECONDS = 30.0


@contextmanager
def running(module: str, environment: Mapping[str, str], *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`python -m module` with more environment than ours, until the end of the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time that the processes have used so far; one that is gone counts nothing."""
    ticks = 0
    for pid in pids:
        fields = _stat(pid)
        if fields:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICKS_PER_SECOND


def reaped_seconds(pid: int) -> float:
    """User and system time of the process's children that have ended."""
    fields = _stat(pid)
    return (int(fields[13]) + int(fields[14])) / _TICKS_PER_SECOND if fields else 0.0


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES


def peak_bytes(pid: int) -> int:
    """The most that was resident so far; 0 for a process that has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def family(pid: int) -> list[int]:
    """The process that started `pid`, and all that it started: a server of many processes."""
    fields = _stat(pid)
    if not fields:
        return []
    parent = int(fields[1])
    numbers = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [parent, *(number for number in numbers if _stat(number)[1:2] == [str(parent)])]


def pin(pids: Iterable[int], cores: Iterable[int]) -> None:
    """Keep the processes with all their threads, and what they start from now on, on these cores."""
    chosen = set(cores)
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").glob("*"):
            with suppress(ProcessLookupError):
                os.sched_setaffinity(int(task.name), chosen)


def busy_part(seconds: float) -> float:
    """The part of all cores that was in use, or taken away by the host, while we slept for so long."""
    before = _core_ticks()
    time.sleep(seconds)
    used = [late - early for early, late in zip(before, _core_ticks(), strict=True)]
    idle = used[3] + used[4]
    return 1 - idle / max(sum(used), 1)


def _core_ticks() -> list[int]:
    # user, nice, system, idle, iowait, irq, softirq, steal
    return [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on: what comes before may contain blanks."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
