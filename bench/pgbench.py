"""pgbench: connections that cost their own machine next to nothing."""

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit


def run(url: str, options: str, *, folder: Path | None = None) -> str:
    """Run it to its end, in a folder for its logs; tells what it prints."""
    done = subprocess.run(
        [_program(), *options.split()],
        env=_environment(url),
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"pgbench {options} has failed:\n{done.stderr}")
    return done.stdout


@contextlib.contextmanager
def running(url: str, options: str) -> Iterator[None]:
    """Run it until the end of the block."""
    process = subprocess.Popen(
        [_program(), *options.split()],
        env=_environment(url),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
        if process.poll():
            raise RuntimeError(f"pgbench {options} has failed")
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def script(sql: str) -> Iterator[str]:
    """A file with a transaction of one's own; gives the option that names it."""
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        file.write(sql)
        file.flush()
        yield f"-f {file.name}"


def rate(output: str) -> float:
    """Transactions a second, without the time that it took to connect."""
    found = re.search(r"^tps = ([0-9.]+)", output, re.MULTILINE)
    if found is None:
        raise RuntimeError(f"pgbench has no result; was it too short?\n{output}")
    return float(found[1])


def _program() -> str:
    program = shutil.which("pgbench")
    if program is None:
        raise FileNotFoundError("pgbench is not on the PATH; it comes with Postgres")
    return program


def _environment(url: str) -> dict[str, str]:
    """The URL as libpq takes it from the environment: a command line can be read by everybody."""
    parts = urlsplit(url)
    return {
        **os.environ,
        "PGHOST": parts.hostname or "",
        "PGPORT": str(parts.port or 5432),
        "PGUSER": parts.username or "",
        "PGPASSWORD": parts.password or "",
        "PGDATABASE": parts.path.lstrip("/"),
    }
