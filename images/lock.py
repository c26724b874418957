"""`make lock`: write what each image installs, to the last dependency and with hashes, from pyproject.toml.

Versions that are locked stay where they still fit; `make lock ARGS=--upgrade` takes the newest ones, and
`ARGS="--upgrade-package asyncpg"` the newest one of a package. Needs the package index.
"""

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
PYPROJECT = FOLDER.parent / "pyproject.toml"
IMAGES = ("operator", "relay", "worker")
"""Each has an extra of its name."""
_OPTIONS = (
    # One lock for every base image: each Python that we support, on each machine.
    "--universal",
    "--generate-hashes",
    "--no-progress",
    "--quiet",
    "--custom-compile-command=make lock",
)
_TIMEOUT_SECONDS = 600


def lock_of(name: str) -> Path:
    """The lock of an image, or of "build", which makes the wheel."""
    return FOLDER / f"requirements-{name}.txt"


def main(arguments: list[str]) -> int:
    project: dict[str, Any] = tomllib.loads(PYPROJECT.read_text())
    oldest = f"--python-version={project['project']['requires-python'].removeprefix('>=')}"
    for image in IMAGES:
        _compile(lock_of(image), "pyproject.toml", f"--extra={image}", oldest, *arguments)
    _compile(lock_of("build"), "-", oldest, *arguments, text="\n".join(project["build-system"]["requires"]))
    return 0


def _compile(lock: Path, source: str, *arguments: str, text: str = "") -> None:
    output = f"--output-file={lock.relative_to(PYPROJECT.parent)}"
    subprocess.run(  # noqa: S603 - a program of this environment
        [sys.executable, "-m", "uv", "pip", "compile", source, output, *_OPTIONS, *arguments],
        cwd=PYPROJECT.parent,
        input=text,
        text=True,
        timeout=_TIMEOUT_SECONDS,
        check=True,
    )


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
