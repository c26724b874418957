"""Engines in a cache that all users of this machine can read, fetched when they are first asked for."""

import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from outbox_cli.local.binaries import postgres_version, rabbitmq_version
from tests.engines import debian, maven
from tests.engines.catalogue import Debian, Engines, Maven, Source, postgres_source, rabbitmq_source
from tests.engines.debian import EngineError
from tests.operator.control_plane.building import cache, one_at_a_time


def provide(
    engines: Engines, environment: Mapping[str, str], progress: Callable[[str], None], *, strict: bool = True
) -> list[Path]:
    """The folders to put in front of PATH. With `strict` the versions have to be exactly those asked for."""
    folders: list[Path] = []
    if engines.rabbitmq is not None:
        root = _fetched(rabbitmq_source(engines.rabbitmq), environment, progress)
        program = root / "usr/lib/rabbitmq/bin/rabbitmq-server"
        if strict:
            _check("RabbitMQ", engines.rabbitmq, rabbitmq_version(program))
        folders += [root / "usr/lib/erlang/bin", program.parent]
    if engines.postgres is not None:
        root = _fetched(postgres_source(engines.postgres), environment, progress)
        [program] = [*root.glob("usr/lib/postgresql/*/bin/postgres"), *root.glob("bin/postgres")]
        if strict:
            _check("Postgres", engines.postgres, postgres_version(program))
        folders.append(program.parent)
    return folders


def _fetched(source: Source, environment: Mapping[str, str], progress: Callable[[str], None]) -> Path:
    folder = _cache(environment) / _name(source)
    with one_at_a_time(folder):
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix="fetching-") as temporary:
                work, root = Path(temporary) / "work", Path(temporary) / "root"
                for made in (work, root):
                    made.mkdir()
                match source:
                    case Debian():
                        debian.unpack(source, work, root, folder, progress)
                    case Maven():
                        maven.unpack(source, work, root, progress)
                root.rename(folder)
    return folder


def _cache(environment: Mapping[str, str]) -> Path:
    """Servers that root starts run as another user, who cannot read root's home."""
    if os.geteuid() == 0 and not environment.get("XDG_CACHE_HOME"):
        return Path("/var/cache/outbox-operator/engines")
    return cache(environment) / "engines"


def _name(source: Source) -> str:
    match source:
        case Debian(suite, packages):
            return f"{suite}-{'-'.join(packages)}"
        case Maven(artifact):
            return artifact.rpartition(":")[0].rpartition(":")[2] + "-" + artifact.rpartition(":")[2]


def _check(product: str, asked: str, found: str) -> None:
    if found != asked:
        raise EngineError(
            f"{product} {asked} was asked for, and its suite of Debian has {found or 'another version'} by "
            "now; correct tests/engines/catalogue.py, or ask for ENGINES=newest"
        )
