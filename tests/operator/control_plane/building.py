"""Compiling Go programs into a cache of the user's, once, with a sign of life for whoever waits."""

import fcntl
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

_BUILD_SECONDS = 3600
_SIGN_OF_LIFE_SECONDS = 15
_LAST_LINES = 20


class ProgramError(Exception):
    """A program is missing or could not be built."""


def cache(environment: Mapping[str, str]) -> Path:
    """Where what was built is kept for the next run."""
    given = environment.get("XDG_CACHE_HOME")
    return (Path(given) if given else Path.home() / ".cache") / "outbox-operator"


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Two who need the same folder filled would otherwise build the same."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        yield


@contextmanager
def filling(folder: Path) -> Iterator[Path]:
    """A folder beside `folder` to build in; its files are moved there when all of them are complete."""
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="building-") as temporary:
        yield Path(temporary)
        folder.mkdir(exist_ok=True)
        for built in Path(temporary).iterdir():
            built.replace(folder / built.name)


def run_go(
    command: Sequence[str | Path],
    folder: Path,
    environment: Mapping[str, str],
    progress: Callable[[str], None],
) -> None:
    """Run a `go` command that prints what it is at (`-v`) in `folder`; repeat that from time to time."""
    began = time.monotonic()
    lines: list[str] = []
    with subprocess.Popen(
        command,
        cwd=folder,
        env={**environment, "CGO_ENABLED": "0"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as compiler:
        reader = threading.Thread(target=_collect, args=(compiler, lines))
        reader.start()
        try:
            while _lives(compiler):
                seconds = time.monotonic() - began
                if seconds > _BUILD_SECONDS:
                    break
                progress(f"  … {seconds:.0f} s, {lines[-1] if lines else 'no word yet'}")
        finally:
            compiler.kill()
            reader.join()
    if compiler.returncode:
        last_lines = "\n".join(lines[-_LAST_LINES:])
        raise ProgramError(
            f"{command[0]} {command[1]} in {folder} failed; can Go modules be downloaded here?\n{last_lines}"
        )


def _collect(compiler: "subprocess.Popen[str]", lines: list[str]) -> None:
    assert compiler.stdout is not None
    lines.extend(line.rstrip() for line in compiler.stdout)


def _lives(compiler: "subprocess.Popen[str]") -> bool:
    try:
        compiler.wait(_SIGN_OF_LIFE_SECONDS)
    except subprocess.TimeoutExpired:
        return True
    return False
