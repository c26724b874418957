"""Finding or starting the local services, and removing what was started."""

import atexit
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, assert_never

from outbox_cli.local import apt, runfolder
from outbox_cli.local.binaries import observe
from outbox_cli.local.choice import (
    POSTGRES,
    RABBITMQ,
    Container,
    Given,
    Installed,
    Package,
    Product,
    Source,
    choose,
)
from outbox_cli.local.container import PostgresContainer, RabbitMQContainer
from outbox_cli.local.errors import LocalServiceError
from outbox_cli.local.postgres import PostgresServer
from outbox_cli.local.rabbitmq import RabbitMQServer
from outbox_cli.local.runfolder import RunFolder
from outbox_cli.local.server import ForeignServer, Postgres, RabbitMQ
from outbox_core.printable import printable_lines
from outbox_core.url_hosts import partition_hosts

MANAGEMENT_VARIABLE = "OUTBOX_RABBITMQ_MANAGEMENT_URL"

Progress: TypeAlias = Callable[[str], None]


@dataclass(frozen=True)
class Services:
    """The services that were asked for."""

    found_postgres: Postgres | None = None
    found_rabbitmq: RabbitMQ | None = None

    @property
    def postgres(self) -> Postgres:
        """The Postgres; an error where it was not asked for."""
        if self.found_postgres is None:
            raise LocalServiceError("Postgres was not asked for: start(postgres=True)")
        return self.found_postgres

    @property
    def rabbitmq(self) -> RabbitMQ:
        """The RabbitMQ; an error where it was not asked for."""
        if self.found_rabbitmq is None:
            raise LocalServiceError("RabbitMQ was not asked for: start(rabbitmq=True)")
        return self.found_rabbitmq


def to_stderr(line: str) -> None:
    """Show progress where it does not mix with a command's output."""
    print(printable_lines(line), file=sys.stderr, flush=True)


@contextmanager
def start(
    *,
    postgres: bool = True,
    rabbitmq: bool = True,
    progress: Progress = to_stderr,
    environment: Mapping[str, str] | None = None,
    temporary: Path | None = None,
    keep: Path | None = None,
) -> Iterator[Services]:
    """Find or start the services, and remove what was started at the end.

    `environment` is where the URLs of running services are looked for, `os.environ` by default; an empty
    one gives private services whatever the shell exports. `temporary` is where the data is kept for the
    time of the run, `$TMPDIR` by default. `keep` is a folder in which it stays instead, and which a later run
    goes on with; its parent exists, and nobody else can write there.
    """
    environment = os.environ if environment is None else environment
    wanted = [product for product, yes in ((POSTGRES, postgres), (RABBITMQ, rabbitmq)) if yes]
    for parent in {runfolder.parent_folder(), runfolder.parent_folder(temporary)}:
        runfolder.sweep(progress, parent)
    sources = _find(wanted, environment, progress)
    if keep and any(isinstance(source, Container) for source in sources.values()):
        raise LocalServiceError(
            "what is in Docker goes with its container; install Postgres and RabbitMQ here to keep their data"
        )
    made = RunFolder.keep(keep) if keep else RunFolder.create(runfolder.parent_folder(temporary))
    with _removed(made) as run:
        services = Services(
            _postgres(sources[POSTGRES], run) if postgres else None,
            _rabbitmq(sources[RABBITMQ], run, environment) if rabbitmq else None,
        )
        with _running(services, progress):
            yield services


def use(environment: Mapping[str, str]) -> Services:
    """The services that somebody else runs, by the variables that name them; nothing is started."""
    postgres, rabbitmq = environment.get(POSTGRES.variable), environment.get(RABBITMQ.variable)
    return Services(
        ForeignServer(POSTGRES, postgres) if postgres else None,
        ForeignServer(RABBITMQ, rabbitmq, management_url(rabbitmq, environment)) if rabbitmq else None,
    )


def management_url(amqp_url: str, environment: Mapping[str, str]) -> str:
    """The management API's URL from the environment, else on the broker's host at the usual port."""
    if given := environment.get(MANAGEMENT_VARIABLE):
        return given.rstrip("/")
    before, hosts, _ = partition_hosts(amqp_url)
    login = before.partition("://")[2]
    return f"http://{login}{','.join(f'{_without_port(host)}:15672' for host in hosts.split(','))}"


def _without_port(host: str) -> str:
    return host if host.endswith("]") else host.rpartition(":")[0] or host


def _find(
    wanted: Sequence[Product], environment: Mapping[str, str], progress: Progress
) -> dict[Product, Source]:
    sources = {product: choose(product, observe(product, environment)) for product in wanted}
    packages = [source.name for source in sources.values() if isinstance(source, Package)]
    if not packages:
        return sources
    progress(f"installing {' and '.join(packages)} with apt-get (about a minute) …")
    apt.install(packages)
    return {product: choose(product, observe(product, environment)) for product in wanted}


def _postgres(source: Source, run: RunFolder) -> Postgres:
    match source:
        case Given(url):
            return ForeignServer(POSTGRES, url)
        case Installed(program):
            return PostgresServer(program, run)
        case Container():
            return PostgresContainer(run)
        case Package(name):
            raise _not_in_package(POSTGRES, name)
        case _:
            assert_never(source)


def _rabbitmq(source: Source, run: RunFolder, environment: Mapping[str, str]) -> RabbitMQ:
    match source:
        case Given(url):
            return ForeignServer(RABBITMQ, url, management_url(url, environment))
        case Installed(program):
            return RabbitMQServer(program, run)
        case Container():
            return RabbitMQContainer(run)
        case Package(name):
            raise _not_in_package(RABBITMQ, name)
        case _:
            assert_never(source)


def _not_in_package(product: Product, package: str) -> LocalServiceError:
    return LocalServiceError(
        f"{product.name} not found although apt-get installed {package}; "
        f"put its server on PATH or set {product.variable}"
    )


@contextmanager
def _removed(run: RunFolder) -> Iterator[RunFolder]:
    """A run folder that is removed also where the interpreter ends without leaving the `with` block."""
    owner = os.getpid()

    def remove() -> None:
        # A forked child inherits the handler, and must not take its parent's services away.
        if os.getpid() == owner:
            run.remove()

    atexit.register(remove)
    try:
        yield run
    finally:
        remove()
        atexit.unregister(remove)


@contextmanager
def _running(services: Services, progress: Progress) -> Iterator[None]:
    both = (services.found_postgres, services.found_rabbitmq)
    private = [server for server in both if server and not isinstance(server, ForeignServer)]
    owner = os.getpid()
    try:
        if private:
            _boot(private, progress)
        yield
    finally:
        if os.getpid() == owner:
            for server in private:
                server.discard()


def _boot(servers: Sequence[Postgres], progress: Progress) -> None:
    titles = " and ".join(server.title for server in servers)
    progress(f"starting {titles} …")
    began = time.monotonic()
    with ThreadPoolExecutor(len(servers)) as pool:
        booting = [pool.submit(server.boot) for server in servers]
    for boot in booting:
        boot.result()
    progress(f"{titles} ready in {time.monotonic() - began:.1f} s")
