"""Connections that go over a network without TLS: whoever is in between can read and change all of it."""

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from outbox_core.url_hosts import is_loopback

_IN_BETWEEN = "whoever is in between can read and change all of it"


def is_plain(connection: Any) -> bool:
    """Whether an asyncpg connection leaves this machine without TLS."""
    # asyncpg offers no way to its transport but this one.
    transport = getattr(connection, "_transport", None)
    if transport is None or transport.get_extra_info("ssl_object") is not None:
        return False
    peer = transport.get_extra_info("peername")
    # That of a Unix socket is a text.
    return isinstance(peer, tuple) and not is_loopback(peer[0])


def plain_hosts(urls: Iterable[str]) -> tuple[str, ...]:
    """The hosts that URLs of brokers lead to without TLS, over a network."""
    parts = [urlsplit(url) for url in urls]
    hosts = (each.hostname or "" for each in parts if each.scheme == "amqp")
    return tuple(host for host in hosts if not is_loopback(host))


def database_warning(where: str) -> str:
    """What a log says of such a connection to a database."""
    return f"the connection to {where} has no TLS: {_IN_BETWEEN}; add sslmode=verify-full to its URL"


def broker_warning(where: str) -> str:
    """What a log says of such a connection to a broker."""
    return f"the connection to {where} has no TLS: {_IN_BETWEEN}; write amqps:// in its URL"
