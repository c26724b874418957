"""Users of the broker and roles of the database, for tests of what an operator may and may not do."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote, urlsplit

import psycopg
from psycopg import sql

from tests.operator.site import Site

ALL = ".*"
NOTHING = "^$"


@contextmanager
def broker_user(site: Site, password: str, *, tags: str, configure: str = ALL) -> Iterator[str]:
    """A user with these tags who may read and write everything in the virtual host; its name."""
    name = f"user-{uuid.uuid4().hex[:12]}"
    tag_broker_user(site, name, password, tags)
    rights = {"configure": configure, "write": ALL, "read": ALL}
    site.broker("PUT", f"permissions/{{vhost}}/{name}", rights)
    try:
        yield name
    finally:
        site.broker("DELETE", f"users/{name}")


def tag_broker_user(site: Site, name: str, password: str, tags: str) -> None:
    """Make a user, or give it other tags."""
    site.broker("PUT", f"users/{name}", {"password": password, "tags": tags})


def broker_uri(site: Site, user: str, password: str) -> str:
    return _uri(site.rabbitmq_url, user, password)


@contextmanager
def database_role(site: Site, password: str) -> Iterator[str]:
    """A role that may make tables in the database; its name."""
    name = f"role_{uuid.uuid4().hex[:12]}"
    role = sql.Identifier(name)
    with psycopg.connect(site.postgres_url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(role, sql.Literal(password)))
        connection.execute(sql.SQL("GRANT USAGE, CREATE ON SCHEMA public TO {}").format(role))
    try:
        yield name
    finally:
        with psycopg.connect(site.postgres_url, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP OWNED BY {}").format(role))
            connection.execute(sql.SQL("DROP ROLE {}").format(role))


def database_uri(site: Site, role: str, password: str) -> str:
    return _uri(site.postgres_url, role, password)


def _uri(like: str, user: str, password: str) -> str:
    parts = urlsplit(like)
    user, password = quote(user, safe=""), quote(password, safe="")
    return f"{parts.scheme}://{user}:{password}@{parts.hostname}:{parts.port}{parts.path}"
