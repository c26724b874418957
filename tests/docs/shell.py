"""A shell as a reader has it open beside a page: what one block sets, the next one has."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.docs.pages import REPOSITORY
from tests.docs.stand_ins import PROGRAMS

_SECONDS = 120
_POLL_SECONDS = 0.05
_NOT_LINKED = {".git", ".venv"}


@dataclass(frozen=True)
class Told:
    """How a script ended, and what it said."""

    status: int
    said: str


@dataclass(frozen=True)
class Shell:
    """One shell."""

    folder: Path
    """Where it stands: a folder of its own that looks like the repository."""
    environment: Mapping[str, str]
    """What it has from the beginning."""

    @classmethod
    def opened(
        cls, folder: Path, environment: Mapping[str, str], real: Mapping[str, Path] | None = None
    ) -> "Shell":
        """A shell in a new folder, where programs have stand-ins but for the `real` ones."""
        for each in REPOSITORY.iterdir():
            if each.name not in _NOT_LINKED:
                (folder / each.name).symlink_to(each)
        programs = folder / ".programs"
        programs.mkdir()
        for name, found in (real or {}).items():
            (programs / name).symlink_to(found)
        for name in set(PROGRAMS) - set(real or {}):
            program = programs / name
            command = f'PYTHONPATH={REPOSITORY} exec {sys.executable} -m tests.docs.stand_ins {name} "$@"'
            program.write_text(f"#!/bin/sh\n{command}\n")
            program.chmod(0o755)
        # As pip writes it of pyproject.toml: an environment may be older than that.
        plugin = programs / "kubectl-outbox"
        plugin.write_text(f"#!{sys.executable}\nfrom outbox_cli.__main__ import main\nmain()\n")
        plugin.chmod(0o755)
        path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
        return cls(folder, {"PATH": path, "HOME": str(folder), "COLUMNS": "110", **environment})

    def run(self, script: str) -> Told:
        """Run a script to its end."""
        exports = self.folder / ".exports"
        exports.touch()
        whole = f"source {exports}\nset -eu -o pipefail\n{script}\nexport -p > {exports}\n"
        done = subprocess.run(
            ["bash", "-c", whole],
            cwd=self.folder,
            env=dict(self.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        return Told(done.returncode, done.stdout)

    def run_until(self, script: str, awaited: str) -> Told:
        """Run a script that goes on until somebody presses Ctrl-C; do so when it has said what is awaited."""
        exports, output = self.folder / ".exports", self.folder / ".output"
        exports.touch()
        # The shell waits for the program's own end, whose exit code it then has.
        whole = f"source {exports}\ntrap : INT\n{script}"
        with output.open("w") as written:
            process = subprocess.Popen(
                ["bash", "-c", whole],
                cwd=self.folder,
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            deadline = time.monotonic() + _SECONDS
            while awaited not in output.read_text() and process.poll() is None:
                assert time.monotonic() < deadline, f"waited for {awaited!r}, read: {output.read_text()}"
                time.sleep(_POLL_SECONDS)
            assert awaited in output.read_text(), f"ended without {awaited!r}: {output.read_text()}"
            os.killpg(process.pid, signal.SIGINT)
            status = process.wait(_SECONDS)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(_SECONDS)
        return Told(status, output.read_text())
