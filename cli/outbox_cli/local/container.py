"""Postgres and RabbitMQ as private Docker containers."""

import secrets
import time
from abc import ABC, abstractmethod
from pathlib import Path

from outbox_cli.local import docker, postgres, probe, rabbitmq
from outbox_cli.local.choice import POSTGRES, RABBITMQ, Product
from outbox_cli.local.errors import LocalServiceError
from outbox_cli.local.ports import free_ports
from outbox_cli.local.runfolder import RunFolder

_START_SECONDS = 120.0
_POLL_SECONDS = 0.1


class ContainerServer(ABC):
    """A container with fixed ports, so that it keeps them over a stop and a start."""

    product: Product

    def __init__(self, run: RunFolder) -> None:
        self.title = f"{self.product.name} ({self.product.image} in Docker)"
        self.name = f"outbox-local-{run.path.name}-{self.product.name.lower()}"
        self.password = secrets.token_urlsafe(18)
        self._run = run

    def boot(self) -> None:
        """Make the container and wait until it answers."""
        self._run.add_container(self.name)
        folder = self._run.subfolder(self.product.name.lower())
        env_file = self._run.secret_file(folder / "environment", self.environment())
        self.run_container(env_file)
        env_file.unlink()
        self._wait()

    def start(self) -> None:
        """Start it again and wait until it answers."""
        docker.start(self.name)
        self._wait()

    def stop(self) -> None:
        """Stop it in order."""
        docker.stop(self.name)

    def kill(self) -> None:
        """SIGKILL it, if it runs."""
        if docker.is_running(self.name):
            docker.kill(self.name)

    def discard(self) -> None:
        """Remove the container with its data."""
        docker.remove(self.name)

    def _wait(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not self.is_ready():
            if time.monotonic() > deadline or not docker.is_running(self.name):
                log = docker.last_lines(self.name).replace(self.password, "***")
                raise LocalServiceError(f"{self.title} did not start; the end of its log:\n{log}")
            time.sleep(_POLL_SECONDS)

    @abstractmethod
    def environment(self) -> str:
        """The lines of the file with the container's environment."""

    @abstractmethod
    def run_container(self, env_file: Path) -> None:
        """Make the container on its ports."""

    @abstractmethod
    def is_ready(self) -> bool:
        """Whether clients are let in."""


class PostgresContainer(ContainerServer):
    """Postgres in Docker."""

    product = POSTGRES

    def __init__(self, run: RunFolder) -> None:
        super().__init__(run)
        (self._port,) = free_ports(1)

    @property
    def url(self) -> str:
        """Where to connect as the superuser."""
        return f"postgresql://{postgres.USER}:{self.password}@127.0.0.1:{self._port}/postgres"

    def environment(self) -> str:
        """The superuser, as the image wants it."""
        return f"POSTGRES_USER={postgres.USER}\nPOSTGRES_PASSWORD={self.password}\nPOSTGRES_DB=postgres\n"

    def run_container(self, env_file: Path) -> None:
        """Make it with the same settings as a Postgres of this machine, but for where it listens."""
        elsewhere = ("listen_addresses", "unix_socket_directories")
        settings = {name: value for name, value in postgres.SETTINGS.items() if name not in elsewhere}
        arguments = [f"--{name}={value}" for name, value in settings.items()]
        docker.run(self.name, self.product.image, env_file, {5432: self._port}, arguments)

    def is_ready(self) -> bool:
        """Whether it asks for a password."""
        return probe.postgres_answers(self._port, postgres.USER)


class RabbitMQContainer(ContainerServer):
    """RabbitMQ in Docker."""

    product = RABBITMQ

    def __init__(self, run: RunFolder) -> None:
        super().__init__(run)
        self._amqp, self._management = free_ports(2)

    @property
    def url(self) -> str:
        """Where to connect as the administrator, to the vhost `/`."""
        return f"amqp://{rabbitmq.USER}:{self.password}@127.0.0.1:{self._amqp}/"

    @property
    def management_url(self) -> str:
        """The management API, with the administrator's credentials."""
        return f"http://{rabbitmq.USER}:{self.password}@127.0.0.1:{self._management}"

    def environment(self) -> str:
        """The administrator, as the image wants it."""
        return f"RABBITMQ_DEFAULT_USER={rabbitmq.USER}\nRABBITMQ_DEFAULT_PASS={self.password}\n"

    def run_container(self, env_file: Path) -> None:
        """Make it; the image has the management plugin on."""
        ports = {5672: self._amqp, 15672: self._management}
        docker.run(self.name, self.product.image, env_file, ports)

    def is_ready(self) -> bool:
        """Whether AMQP and the management API both answer."""
        return probe.amqp_answers(self._amqp) and probe.management_answers(
            self._management, rabbitmq.USER, self.password
        )
