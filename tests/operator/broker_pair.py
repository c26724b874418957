"""Two nodes of RabbitMQ that form a cluster: one of them may be away."""

import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from outbox_cli.local import Services, start
from outbox_cli.local.rabbitmq import RabbitMQServer
from tests.integration.administrator import management, rabbitmqctl

SECOND = "second@localhost"
_COOKIE = ".erlang.cookie"
_START_SECONDS = 120.0
_STOP_SECONDS = 60.0


class SecondNode(RabbitMQServer):
    """A node that joins another, with whose name server and cookie it runs."""

    def __init__(self, first: RabbitMQServer) -> None:
        # Not that of a node of its own, which would remove the first one's installation.
        self.title = f"{first.title}, second node"
        self._first, self._program, self._run = first, first._program, first._run
        self._folder = first._run.subfolder("rabbitmq-second")
        self._slim_sbin, self._password = first._slim_sbin, first._password
        self._broker = self._epmd = None
        cookie, owner = self._folder / _COOKIE, self._folder.stat()
        shutil.copy(first._folder / _COOKIE, cookie)
        shutil.chown(cookie, owner.st_uid, owner.st_gid)
        cookie.chmod(0o400)

    def start(self) -> None:
        self._broker = self._make_broker()
        self._broker.start()
        self._broker.wait_until(self._answers, _START_SECONDS)
        # It answers before the others count it as running, and has no virtual host made in between.
        rabbitmqctl(self, "await_startup")

    def stop(self) -> None:
        if self._broker:
            self._broker.stop(signal.SIGTERM, _STOP_SECONDS)

    def _environment(self) -> dict[str, str]:
        name_server = {"ERL_EPMD_PORT": str(self._first._epmd_port)}
        return {**super()._environment(), **name_server, "RABBITMQ_NODENAME": SECOND}


@contextmanager
def broker_pair() -> Iterator[tuple[Services, SecondNode]]:
    """The first node, which stays, and the second, which can be stopped and started."""
    with start(postgres=False, environment={}) as services:
        first = services.rabbitmq
        if not isinstance(first, RabbitMQServer):
            pytest.skip("needs RabbitMQ from the programs on this machine")
        second = SecondNode(first)
        try:
            second.boot()
            for command in ("stop_app", "reset"):
                rabbitmqctl(second, command)
            rabbitmqctl(second, "join_cluster", "outbox@localhost")
            rabbitmqctl(second, "start_app")
            assert len(management(services, "GET", "nodes")) == 2
            yield services, second
        finally:
            second.kill()
