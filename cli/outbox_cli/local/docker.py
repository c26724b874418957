"""The Docker engine, where one answers, through its command line."""

import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from outbox_cli.local.errors import LocalServiceError

_ASK_SECONDS = 4.0
_PULL_SECONDS = 600.0
_STOP_SECONDS = 90.0


@cache
def answers() -> bool:
    """Whether there is an engine behind the client. Asked once: silence takes seconds to notice."""
    if not shutil.which("docker"):
        return False
    try:
        said = _docker(["info", "--format", "{{.ServerVersion}}"], _ASK_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return said.returncode == 0 and bool(said.stdout.strip())


def run(name: str, image: str, env_file: Path, ports: dict[int, int], arguments: Sequence[str] = ()) -> None:
    """Make and start a container that publishes its ports (inside: outside) on 127.0.0.1.

    The environment comes from a file, because a command line is there for everybody to read.
    """
    published = [f"--publish=127.0.0.1:{outside}:{inside}" for inside, outside in ports.items()]
    command = ["run", "--detach", f"--name={name}", f"--env-file={env_file}", *published, image, *arguments]
    _require(command, _PULL_SECONDS)


def start(name: str) -> None:
    """Start a stopped container."""
    _require(["start", name], _STOP_SECONDS)


def stop(name: str) -> None:
    """Stop a container in order."""
    _require(["stop", "--time=60", name], _STOP_SECONDS)


def kill(name: str) -> None:
    """SIGKILL a container's processes."""
    _require(["kill", name], _STOP_SECONDS)


def is_running(name: str) -> bool:
    """Whether its main process lives."""
    said = _docker(["inspect", "--format", "{{.State.Running}}", name], _STOP_SECONDS)
    return said.stdout.strip() == "true"


def last_lines(name: str) -> str:
    """The end of its log."""
    return _docker(["logs", "--tail=20", name], _STOP_SECONDS).stdout


def remove(name: str) -> None:
    """Remove a container with its data, running or not. No such container, or no Docker, is fine too."""
    with suppress(FileNotFoundError, subprocess.TimeoutExpired):
        _docker(["rm", "--force", "--volumes", name], _STOP_SECONDS)


def _require(arguments: Sequence[str], timeout_seconds: float) -> None:
    done = _docker(arguments, timeout_seconds)
    if done.returncode:
        raise LocalServiceError(f"docker {' '.join(arguments)} failed:\n{done.stdout.strip()}")


def _docker(arguments: Sequence[str], timeout_seconds: float) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["docker", *arguments],  # noqa: S607 - whichever docker is on PATH
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=timeout_seconds,
        check=False,
    )
