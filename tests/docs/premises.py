"""A page's own database and virtual host, on the services that all tests share."""

import asyncio
import uuid
from contextlib import ExitStack
from functools import cached_property
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

from outbox_cli.local import Services
from tests.docs import preludes
from tests.integration.administrator import management

DATABASE = "app:secret@db/shop"
BROKER_URL = "amqp://app:secret@rabbitmq/"
"""What the pages call them."""


class Premises:
    """Made when they are asked for, and gone when they are closed."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._closing = ExitStack()

    def close(self) -> None:
        self._closing.close()

    @cached_property
    def runner(self) -> asyncio.Runner:
        """The page's event loop."""
        return self._closing.enter_context(asyncio.Runner())

    @cached_property
    def database_url(self) -> str:
        """A database with the shop's tables."""
        url = self._new_database()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(preludes.TABLES.encode())
        return url

    @cached_property
    def broker_url(self) -> str:
        """A virtual host with the shop's queues."""
        url = self._new_vhost()
        self.runner.run(preludes.fill(url))
        return url

    def empty(self) -> dict[str, str]:
        """The variables for a program that would start services of its own, and finds empty ones."""
        return {
            "OUTBOX_POSTGRES_URL": self._new_database(),
            "OUTBOX_RABBITMQ_URL": self._new_vhost(),
            "OUTBOX_RABBITMQ_MANAGEMENT_URL": self._services.rabbitmq.management_url,
        }

    def real(self, text: str) -> str:
        """The text with what there is, in place of what the page calls it."""
        if DATABASE in text:
            url = urlsplit(self.database_url)
            text = text.replace(DATABASE, f"{url.netloc}{url.path}")
        return text.replace(BROKER_URL, self.broker_url) if BROKER_URL in text else text

    def _new_database(self) -> str:
        name = f"docs_{uuid.uuid4().hex}"
        server = self._services.postgres.url
        _administer(server, sql.SQL("CREATE DATABASE {}"), name)
        self._closing.callback(_administer, server, sql.SQL("DROP DATABASE {} WITH (FORCE)"), name)
        return urlunsplit(urlsplit(server)._replace(path=f"/{name}"))

    def _new_vhost(self) -> str:
        name = f"docs_{uuid.uuid4().hex}"
        url = urlsplit(self._services.rabbitmq.url)
        management(self._services, "PUT", f"vhosts/{name}")
        self._closing.callback(management, self._services, "DELETE", f"vhosts/{name}")
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        management(self._services, "PUT", f"permissions/{name}/{url.username}", everything)
        return urlunsplit(url._replace(path=f"/{name}"))


def _administer(server: str, statement: sql.SQL, name: str) -> None:
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(statement.format(sql.Identifier(name)))
