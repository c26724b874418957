"""A private Postgres in which nobody but the test has a transaction, for what is true of a whole server."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from outbox_cli.local import start

_SETTINGS = ("max_prepared_transactions = 10", "wal_level = logical", "autovacuum = off")


@contextmanager
def lone_postgres() -> Iterator[str]:
    """Start one, and give the URL of its superuser."""
    with start(rabbitmq=False, environment={}) as services:
        asyncio.run(_configure(services.postgres.url))
        services.postgres.stop()
        services.postgres.start()
        yield services.postgres.url


async def _configure(url: str) -> None:
    connection = await asyncpg.connect(url)
    for setting in _SETTINGS:
        await connection.execute(f"ALTER SYSTEM SET {setting}")
    await connection.close()


def at(url: str, *, database: str | None = None, user: str | None = None) -> str:
    """The URL of another database, or of a user whose password is its name."""
    parts = urlsplit(url)
    login = f"{user}:{user}" if user else f"{parts.username}:{parts.password}"
    path = parts.path if database is None else f"/{database}"
    return urlunsplit(parts._replace(netloc=f"{login}@{parts.hostname}:{parts.port}", path=path))
