"""Nodes of RabbitMQ on this machine that form one cluster, of which some may be away."""

import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from outbox_cli.local import Services, start
from outbox_cli.local.rabbitmq import RabbitMQServer
from tests.integration.administrator import management, rabbitmqctl

_COOKIE = ".erlang.cookie"
_START_SECONDS = 120.0
_STOP_SECONDS = 60.0


class JoinedNode(RabbitMQServer):
    """A node that joins the first one, with whose name server and cookie it runs."""

    def __init__(self, first: RabbitMQServer, number: int) -> None:
        # Not that of a node of its own, which would remove the first one's installation.
        self.title = f"{first.title}, node {number}"
        self.name = f"node{number}@localhost"
        self._first, self._program, self._run = first, first._program, first._run
        self._folder = first._run.subfolder(f"rabbitmq-{number}")
        self._slim_sbin, self._password = first._slim_sbin, first._password
        self._broker = self._epmd = None
        cookie, owner = self._folder / _COOKIE, self._folder.stat()
        shutil.copy(first._folder / _COOKIE, cookie)
        shutil.chown(cookie, owner.st_uid, owner.st_gid)
        cookie.chmod(0o400)

    def join(self) -> None:
        self.boot()
        # It answers before it has started as a whole.
        for command in ("await_startup", "stop_app", "reset"):
            rabbitmqctl(self, command)
        rabbitmqctl(self, "join_cluster", "outbox@localhost")
        rabbitmqctl(self, "start_app")

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
        return {**super()._environment(), **name_server, "RABBITMQ_NODENAME": self.name}


@dataclass(frozen=True)
class BrokerCluster:
    """A first node, which stays, and others, which can be stopped and started."""

    services: Services
    """Where the first node is."""
    joined: tuple[JoinedNode, ...]


@contextmanager
def broker_cluster(nodes: int) -> Iterator[BrokerCluster]:
    """So many nodes, for as long as this is entered."""
    with start(postgres=False, environment={}) as services:
        if not isinstance(services.rabbitmq, RabbitMQServer):
            pytest.skip("needs RabbitMQ from the programs on this machine")
        first = services.rabbitmq
        joined: list[JoinedNode] = []
        try:
            for number in range(2, nodes + 1):
                joined.append(JoinedNode(first, number))
                joined[-1].join()
            assert len(management(services, "GET", "nodes")) == nodes
            yield BrokerCluster(services, tuple(joined))
        finally:
            for node in joined:
                node.kill()
