import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from outbox_cli.local import processes
from outbox_cli.local.processes import Process

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts programs that end with the test."""
    started: list[subprocess.Popen[str]] = []

    def start(*command: str, cwd: Path | None = None) -> "subprocess.Popen[str]":
        child = subprocess.Popen(command, cwd=cwd, text=True, stdout=subprocess.PIPE, start_new_session=True)
        started.append(child)
        return child

    yield start
    for child in started:
        child.kill()
        child.communicate()


def process_of(child: "subprocess.Popen[str]") -> Process:
    found = processes.find(child.pid)
    assert found is not None
    return found


def test_this_process_is_alive() -> None:
    assert processes.current().pid == os.getpid()
    assert processes.is_alive(processes.current())


def test_a_later_process_with_the_same_pid_is_another(start: Start) -> None:
    process = process_of(start("sleep", "60"))
    assert process.started is not None
    assert processes.is_alive(process)
    assert not processes.is_alive(Process(process.pid, process.started - 1))


def test_a_zombie_is_not_alive(start: Start) -> None:
    child = start("sleep", "60")
    process = process_of(child)
    child.kill()
    deadline = time.monotonic() + 10
    while processes.is_alive(process):
        assert time.monotonic() < deadline, "the killed child never became a zombie"


def test_a_family_has_grandchildren_in_sessions_of_their_own(start: Start) -> None:
    child = start("sh", "-c", "setsid sleep 60 & echo $!; wait")
    assert child.stdout is not None
    grandchild = int(child.stdout.readline())
    family = processes.family([process_of(child)])
    assert {child.pid, grandchild} <= {member.pid for member in family}
    processes.end(family)
    assert processes.find(grandchild) is None


def test_processes_are_found_by_the_folder_they_work_in(start: Start, tmp_path: Path) -> None:
    below, beside = tmp_path / "run" / "data", tmp_path / "run-2"
    below.mkdir(parents=True)
    beside.mkdir()
    inside, outside = start("sleep", "60", cwd=below), start("sleep", "60", cwd=beside)
    found = {process.pid for process in processes.inside(tmp_path / "run")}
    assert inside.pid in found
    assert outside.pid not in found


def test_the_end_waits_for_the_time_of_grace(start: Start) -> None:
    child = start("sh", "-c", "trap 'echo in order; exit' TERM; echo ready; while :; do sleep 0.01; done")
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    process = process_of(child)
    child.terminate()
    processes.end([process], grace_seconds=30)
    assert child.stdout.readline() == "in order\n"
