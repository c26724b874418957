"""kubectl as a user types it, on whichever cluster the tests have."""

import json
import os
import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Manifest = dict[str, Any]

DEADLINE_SECONDS = 120.0
POLL_SECONDS = 0.2
_COMMAND_SECONDS = 120


@dataclass(frozen=True)
class Kubectl:
    """A program, and the cluster it talks to."""

    program: Path
    kubeconfig: Path

    def __call__(self, *arguments: str, text: str = "", seconds: float = _COMMAND_SECONDS) -> str:
        """What it prints; where it fails, so does the test, with its words."""
        done = self.attempt(*arguments, text=text, seconds=seconds)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)} failed:\n{done.stderr or done.stdout}"
        return done.stdout

    def attempt(
        self, *arguments: str, text: str = "", seconds: float = _COMMAND_SECONDS
    ) -> subprocess.CompletedProcess[str]:
        """Run it with `text` as its input, whatever comes of it."""
        inherited = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        return subprocess.run(
            [self.program, *arguments],
            env={**inherited, "KUBECONFIG": str(self.kubeconfig)},
            input=text,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def get(self, *arguments: str) -> Manifest:
        """An object, or a list of them."""
        found: Manifest = json.loads(self("get", *arguments, "--output=json"))
        return found

    def apply(self, *manifests: Manifest) -> None:
        items = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
        self("apply", "--filename=-", text=json.dumps(items))


def rows(shown: str) -> dict[str, dict[str, str]]:
    """The lines that `kubectl get` shows, of one table or several, by their NAME: the cells by heading."""
    found: dict[str, dict[str, str]] = {}
    starts: dict[str, int] = {}
    for line in shown.splitlines():
        if line.startswith("NAME "):
            starts = {heading[0]: heading.start() for heading in re.finditer(r"\S+", line)}
        elif line.strip():
            ends = [*list(starts.values())[1:], None]
            cells = [line[start:end].strip() for start, end in zip(starts.values(), ends, strict=True)]
            found[cells[0]] = dict(zip(starts, cells, strict=True))
    return found


def until(what: str, holds: Callable[[], object], seconds: float = DEADLINE_SECONDS) -> None:
    """Poll until it holds, and fail with what was awaited otherwise."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"still waiting after {seconds:g} s until {what}"
        time.sleep(POLL_SECONDS)
