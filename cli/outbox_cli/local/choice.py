"""Where a service comes from: a pure decision over what was seen on this machine."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from outbox_cli.local.errors import LocalServiceError


@dataclass(frozen=True)
class Product:
    """A service that can be had in several ways."""

    name: str
    """What people call it."""
    variable: str
    """The environment variable that names a running one."""
    package: str
    """The Debian package."""
    image: str
    """The Docker image."""


POSTGRES = Product("Postgres", "OUTBOX_POSTGRES_URL", "postgresql", "postgres:17")
RABBITMQ = Product("RabbitMQ", "OUTBOX_RABBITMQ_URL", "rabbitmq-server", "rabbitmq:4-management")


@dataclass(frozen=True)
class Seen:
    """What this machine offers for one product."""

    url: str | None = field(default=None, repr=False)
    """The URL in the environment."""
    program: Path | None = None
    """The server's program on this machine."""
    docker: bool = False
    """A Docker engine answers. Only asked for where there is neither URL nor program."""
    apt: bool = False
    """apt-get is here, and we are root."""


@dataclass(frozen=True)
class Given:
    """Somebody else runs it and told us where."""

    url: str = field(repr=False)


@dataclass(frozen=True)
class Installed:
    """Run the program that is on this machine."""

    program: Path


@dataclass(frozen=True)
class Container:
    """Run the image."""

    image: str


@dataclass(frozen=True)
class Package:
    """Install the package, then look again."""

    name: str


Source: TypeAlias = Given | Installed | Container | Package


def choose(product: Product, seen: Seen) -> Source:
    """Take the first that is there: a URL, a program, Docker, apt-get."""
    if seen.url:
        return Given(seen.url)
    if seen.program:
        return Installed(seen.program)
    if seen.docker:
        return Container(product.image)
    if seen.apt:
        return Package(product.package)
    raise LocalServiceError(
        f"{product.name} not found: install it (Debian, as root: apt-get install {product.package}), "
        f"start Docker, or set {product.variable}"
    )
