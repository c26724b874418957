"""Users of the tests' own, on services that somebody else runs.

Only if a user's name there is its password, as `guest:guest`: a test that looks for the password in what is
shown would find the name.
"""

import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

from outbox_cli.local import Services
from outbox_cli.local.choice import POSTGRES, RABBITMQ
from outbox_cli.local.server import ForeignServer
from tests.integration.administrator import management

_EVERYTHING = {"configure": ".*", "write": ".*", "read": ".*"}


@contextmanager
def own_users(services: Services) -> Iterator[Services]:
    """The same services, entered as superusers who are there for as long as this is."""
    with ExitStack() as users:
        postgres, rabbitmq = services.postgres, services.rabbitmq
        if _is_shown(postgres.url):
            name, password = users.enter_context(_role(postgres.url))
            postgres = ForeignServer(POSTGRES, _as(postgres.url, name, password))
        if _is_shown(rabbitmq.url):
            name, password = users.enter_context(_broker_user(services))
            management_url = _as(rabbitmq.management_url, name, password)
            rabbitmq = ForeignServer(RABBITMQ, _as(rabbitmq.url, name, password), management_url)
        yield Services(postgres, rabbitmq)


def _is_shown(url: str) -> bool:
    parts = urlsplit(url)
    return parts.username == parts.password


def _as(url: str, user: str, password: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{user}:{password}@{parts.netloc.rpartition('@')[2]}"))


def _drawn() -> tuple[str, str]:
    return f"tests_{secrets.token_hex(4)}", secrets.token_hex(16)


@contextmanager
def _role(url: str) -> Iterator[tuple[str, str]]:
    name, password = _drawn()
    role = sql.Identifier(name)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            sql.SQL("CREATE ROLE {} SUPERUSER LOGIN PASSWORD {}").format(role, sql.Literal(password))
        )
    try:
        yield name, password
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP ROLE {}").format(role))


@contextmanager
def _broker_user(services: Services) -> Iterator[tuple[str, str]]:
    name, password = _drawn()
    management(services, "PUT", f"users/{name}", {"password": password, "tags": "administrator"})
    try:
        management(services, "PUT", f"permissions/%2F/{name}", _EVERYTHING)
        yield name, password
    finally:
        management(services, "DELETE", f"users/{name}")
