"""A Postgres database, and connections to it by asyncpg."""

import asyncio
import logging
import os
import socket
from typing import Any

import asyncpg

from outbox_core.database_errors import (
    AccessDeniedError,
    AuthenticationError,
    DatabaseError,
    DatabaseMissingError,
    DatabaseURLError,
    TLSError,
    UnreachableError,
    is_lost,
    tells_of_pooler,
    translated,
)
from outbox_core.database_urls import connect_arguments, url_of

__all__ = [
    "AccessDeniedError",
    "AuthenticationError",
    "Database",
    "DatabaseError",
    "DatabaseMissingError",
    "DatabaseURLError",
    "TLSError",
    "UnreachableError",
    "connect_arguments",
    "is_lost",
    "tells_of_pooler",
]

CONNECT_SECONDS = 10.0
"""How long connecting may take, unless the URL's `connect_timeout` says otherwise."""

_log = logging.getLogger("outbox.database")

_PASSING = (
    asyncpg.TransactionRollbackError,
    asyncpg.LockNotAvailableError,
    asyncpg.InsufficientResourcesError,
    asyncpg.OperatorInterventionError,
)
"""A statement that somebody cancelled, that met a deadlock, or for which there was no room: try again."""

_KEEPALIVE_SECONDS = {"IDLE": 30, "INTVL": 10, "CNT": 3}
"""After which a peer that vanished is noticed: idle time, time between tries, and their count."""

# The server's side of the same: a machine that lost its power must not hold row locks for two hours. Not as
# startup parameters, which PgBouncer would refuse.
_SERVER_KEEPALIVE = (
    "SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3"
)


class Database:
    """Where the database is and how to get in. It holds no connection."""

    def __init__(self, source: object, *, pooled: bool = False) -> None:
        """`source` is a URL or an SQLAlchemy engine.

        `pooled` is for a pooler in transaction mode (PgBouncer): no prepared statement outlives its
        transaction. Statements with arguments then have to run inside a transaction: asyncpg prepares and
        executes them in two steps, and outside of one the pooler may give each step another session.
        """
        self._arguments = connect_arguments(url_of(source))
        self.pooled = pooled or self._arguments.get("statement_cache_size") == 0

    def __repr__(self) -> str:
        return f"<Database {self.where}>"

    @property
    def where(self) -> str:
        """Host, port, database and user, for people: `Postgres db:5432/shop (user app)`."""
        user = self._arguments.get("user") or os.environ.get("PGUSER")
        database = self._arguments.get("database") or os.environ.get("PGDATABASE") or user
        as_user = f" (user {user})" if user else ""
        return f"Postgres {_address(self._arguments)}/{database or ''}{as_user}"

    def is_passing(self, error: BaseException) -> bool:
        """Whether a new connection is worth trying after this error.

        The first one that tells of a pooler in transaction mode makes the database `pooled` from then on.
        """
        if tells_of_pooler(error):
            if not self.pooled:
                _log.warning("%s is behind a pooler in transaction mode: nothing stays prepared", self.where)
            self.pooled = True
            return True
        return isinstance(error, _PASSING) or is_lost(error)

    async def connect(self, name: str = "outbox", *, prepared: bool = True) -> Any:
        """A new `asyncpg.Connection`, shown under this name in `pg_stat_activity`; or a `DatabaseError`.

        Without `prepared` it keeps no prepared statements, as if the database was pooled.
        """
        try:
            return await self._connect(name, prepared)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
            raise translated(error, self.where) from error
        except (OSError, ValueError) as error:
            raise translated(error, self.where) from error

    async def _connect(self, name: str, prepared: bool) -> Any:
        arguments = {"timeout": CONNECT_SECONDS, **self._arguments}
        # The URL's own application_name is what an application shows; these are not its connections.
        arguments["server_settings"] = {**arguments.get("server_settings", {}), "application_name": name}
        if self.pooled or not prepared:
            arguments["statement_cache_size"] = 0
        else:
            # By default a statement is prepared again every five minutes, also in the middle of a batch.
            arguments["max_cached_statement_lifetime"] = 0
        connection = await asyncpg.connect(**arguments)
        try:
            _keep_alive(connection)
            if not self.pooled:
                await connection.execute(_SERVER_KEEPALIVE, timeout=arguments["timeout"])
        except (Exception, asyncio.CancelledError):
            connection.terminate()
            raise
        return connection


def _keep_alive(connection: Any) -> None:
    # asyncpg offers no way to its socket but this one.
    transport = getattr(connection, "_transport", None)
    sock = transport.get_extra_info("socket") if transport is not None else None
    if sock is None or sock.family == getattr(socket, "AF_UNIX", None):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE_SECONDS.items():
        if (number := getattr(socket, f"TCP_KEEP{option}", None)) is not None:
            sock.setsockopt(socket.IPPROTO_TCP, number, value)


def _address(arguments: dict[str, Any]) -> str:
    hosts = arguments.get("host") or os.environ.get("PGHOST") or "localhost"
    ports = arguments.get("port") or os.environ.get("PGPORT") or 5432
    names = hosts if isinstance(hosts, list) else [hosts]
    numbers = ports if isinstance(ports, list) else [ports] * len(names)
    return ",".join(
        name if name.startswith("/") else f"[{name}]:{port}" if ":" in name else f"{name}:{port}"
        for name, port in zip(names, numbers, strict=False)
    )
