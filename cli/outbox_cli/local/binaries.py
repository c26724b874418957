"""What this machine offers: programs on PATH and where Debian keeps them, a Docker engine, apt-get."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from outbox_cli.local import docker
from outbox_cli.local.choice import POSTGRES, Product, Seen

_SYSTEM = Path("/")
_DEBIAN_WRAPPER = "rabbitmq-script-wrapper"


def observe(product: Product, environment: Mapping[str, str]) -> Seen:
    """Look for a product, and ask Docker (slow) only where nothing nearer is found."""
    url = environment.get(product.variable) or None
    program = find_postgres() if product is POSTGRES else find_rabbitmq()
    return Seen(
        url=url,
        program=program,
        docker=not url and not program and docker.answers(),
        apt=os.geteuid() == 0 and shutil.which("apt-get") is not None,
    )


def find_postgres(system: Path = _SYSTEM, path: str | None = None) -> Path | None:
    """The `postgres` program with an `initdb` beside it: on PATH, else Debian's newest version."""
    on_path = shutil.which("postgres", path=path)
    # A link on PATH need not have its neighbours beside it; the folder it points into does.
    found = [Path(on_path).resolve()] if on_path else []
    found += sorted(system.glob("usr/lib/postgresql/*/bin/postgres"), key=_major_version, reverse=True)
    return next((program for program in found if program.with_name("initdb").exists()), None)


def find_rabbitmq(system: Path = _SYSTEM, path: str | None = None) -> Path | None:
    """The `rabbitmq-server` script itself: on PATH, else in Debian's folder.

    Debian puts a wrapper on PATH that switches to the user `rabbitmq` or refuses: it is the last resort.
    """
    found = [
        *system.glob("usr/lib/rabbitmq/bin/rabbitmq-server"),
        *sorted(system.glob("usr/lib/rabbitmq/lib/*/sbin/rabbitmq-server"), reverse=True),
    ]
    if on_path := shutil.which("rabbitmq-server", path=path):
        is_wrapper = Path(on_path).resolve().name == _DEBIAN_WRAPPER
        found.insert(len(found) if is_wrapper else 0, Path(on_path))
    return next(iter(found), None)


def find_epmd(system: Path = _SYSTEM, path: str | None = None) -> Path | None:
    """Erlang's port mapper, which every Erlang installation has, on PATH or below its runtime."""
    on_path = shutil.which("epmd", path=path)
    below_erlang = sorted(system.glob("usr/lib/erlang/erts-*/bin/epmd"), reverse=True)
    return Path(on_path) if on_path else next(iter(below_erlang), None)


def postgres_version(program: Path) -> str:
    """The major version, such as 15; empty where the program does not say."""
    said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=False)
    match = re.search(r"\(PostgreSQL\) (\d+)", said.stdout)
    return match[1] if match else ""


def rabbitmq_version(program: Path) -> str:
    """The series, such as 3.10, from the installation's folder: asking the program starts an Erlang VM."""
    match = re.search(r"rabbitmq[_-]server-(\d+\.\d+)", str(program.resolve()))
    return match[1] if match else ""


def _major_version(program: Path) -> int:
    name = program.parent.parent.name
    return int(name) if name.isdecimal() else 0
