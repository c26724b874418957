"""A Postgres database, and connections to it by asyncpg."""

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Mapping
from types import MappingProxyType
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
    unreachable,
)
from outbox_core.database_isolation import isolated, may_be_plain, refuses_tls
from outbox_core.database_urls import connect_arguments, hosts_of, url_of
from outbox_core.url_hosts import bracketed

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

_CONNECT_SECONDS_EACH = 3.0
"""The same for each of several hosts: one that vanished must not keep us from the next for long."""

_log = logging.getLogger("outbox.database")

_PASSING = (
    asyncpg.TransactionRollbackError,
    asyncpg.LockNotAvailableError,
    asyncpg.InsufficientResourcesError,
    asyncpg.OperatorInterventionError,
)
"""A statement that somebody cancelled, that met a deadlock, or for which there was no room: try again."""

_CONNECTING = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    ValueError,
)
"""What asyncpg raises when it connects."""

_KEEPALIVE_SECONDS = {"IDLE": 30, "INTVL": 10, "CNT": 3}
"""After which a peer that vanished is noticed: idle time, time between tries, and their count."""

_UNACKNOWLEDGED_MS = 60_000
"""How long sent data may stay unacknowledged before the kernel ends the connection."""

_SESSION = {
    # The server's side of the same: a machine that lost its power must not hold row locks for two hours.
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
}
"""Set in each session that is not a pooler's, and not as startup parameters, which PgBouncer would refuse."""

_BACKEND = "pg_catalog.pg_backend_pid() = {pid}"
"""False if a pooler is between: the session is not the one that has sent its process id."""


_ARRAYS = [
    {
        "oid": oid,
        "ns": "pg_catalog",
        "name": f"_{element}",
        "kind": b"b",
        "basetype": None,
        "elemtype": element_oid,
        "elemtype_name": element,
        "elemdelim": ",",
        "range_subtype": None,
        "attrtypoids": None,
        "attrnames": None,
    }
    for oid, element, element_oid in (
        (1001, "bytea", 17),
        (1005, "int2", 21),
        (1007, "int4", 23),
        (1016, "int8", 20),
        (1022, "float8", 701),
        (2951, "uuid", 2950),
    )
]
"""The types of our parameters that asyncpg would ask the server for, in the form of the server's answer.

Its query compares an oid with an integer, and so calls any operator of these types that somebody has made in
a schema of the search path.
"""


class _Connection(asyncpg.Connection):  # type: ignore[misc]  # asyncpg has no types
    """An asyncpg connection that knows arrays, and whose statements have names that no other one uses."""

    __slots__ = ("_name_suffix",)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._name_suffix = secrets.token_hex(8)
        self._protocol.get_settings().register_data_types(_ARRAYS)

    def _get_unique_id(self, prefix: str) -> str:
        # asyncpg counts from 1 in every process. A pooler that is not recognised as one would then let a
        # connection execute the statement that another process has prepared under the same name.
        return f"{super()._get_unique_id(prefix)}{self._name_suffix}"


class Database:
    """Where the database is and how to get in. It holds no connection."""

    def __init__(
        self,
        source: object,
        *,
        ambient: bool = True,
        ca: str | None = None,
        pooled: bool = False,
        statement_seconds: float | None = None,
        session: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`source` is a URL or an SQLAlchemy engine.

        Of several hosts, the first that accepts writes is used, unless `target_session_attrs` says otherwise.

        Without `ambient` the URL is all that is used, as it must be if somebody else wrote it: no variables,
        no password file, no certificate or ticket of this machine's user. One that names files is refused.

        `ca` has the certificates, in PEM, by which the server's is then checked, in place of the system's. It
        is for URLs without `ambient` only.

        `pooled` is for a pooler in transaction mode (PgBouncer): no prepared statement outlives its
        transaction. Statements with arguments then have to run inside a transaction: asyncpg prepares and
        executes them in two steps, and outside of one the pooler may give each step another session. A
        connection that meets a pooler sets it.

        `statement_seconds` limits each statement without a timeout of its own, unless the URL has a limit.
        `session` has parameters for each session, except those of a pooler.
        """
        given = connect_arguments(url_of(source))
        self._arguments = given if ambient else isolated(given, ca)
        self._tries_plain = not ambient and ca is None and may_be_plain(given)
        self._hosts = hosts_of(self._arguments)
        self._first = 0
        if len(self._hosts) > 1:
            wanted = os.environ.get("PGTARGETSESSIONATTRS", "read-write")
            self._arguments.setdefault("target_session_attrs", wanted)
            self._arguments.setdefault("timeout", _CONNECT_SECONDS_EACH)
        self._session = {**_SESSION, **session}
        if statement_seconds is not None:
            self._arguments.setdefault("command_timeout", statement_seconds)
        self.pooled = pooled or self._arguments.get("statement_cache_size") == 0

    def __repr__(self) -> str:
        return f"<Database {self.where}>"

    @property
    def where(self) -> str:
        """Host, port, database and user, for people: `Postgres db:5432/shop (user app)`."""
        return self._describe(",".join(map(_address, self._hosts)))

    def _describe(self, address: str) -> str:
        user = self._arguments.get("user") or os.environ.get("PGUSER")
        database = self._arguments.get("database") or os.environ.get("PGDATABASE") or user
        as_user = f" (user {user})" if user else ""
        return f"Postgres {address}/{database or ''}{as_user}"

    def is_passing(self, error: BaseException) -> bool:
        """Whether a new connection is worth trying after this error.

        The first one that tells of a pooler in transaction mode makes the database `pooled` from then on.
        """
        if tells_of_pooler(error):
            self.assume_pooler()
            return True
        return isinstance(error, _PASSING) or is_lost(error)

    def assume_pooler(self) -> None:
        """Keep no prepared statement on connections made from now on."""
        if not self.pooled:
            _log.warning("%s is behind a pooler: nothing stays prepared", self.where)
        self.pooled = True

    async def connect(self, name: str = "outbox", *, prepared: bool = True) -> Any:
        """A new `asyncpg.Connection`, shown under this name in `pg_stat_activity`; or a `DatabaseError`.

        Without `prepared` it keeps no prepared statements, as if the database was pooled.
        """
        try:
            return await self._connect(name, prepared)
        except _CONNECTING as error:
            raise translated(error, self.where) from error

    async def _connect(self, name: str, prepared: bool) -> Any:
        connection = await self._opened(name, prepared)
        if self.pooled:
            return connection
        try:
            if await _is_direct(connection, self._session):
                return connection
        except (Exception, asyncio.CancelledError):
            connection.terminate()
            raise
        self.assume_pooler()
        if not prepared:
            return connection
        connection.terminate()
        return await self._opened(name, prepared)

    async def _opened(self, name: str, prepared: bool) -> Any:
        arguments = {"timeout": CONNECT_SECONDS, **self._arguments}
        # The URL's own application_name is what an application shows; these are not its connections.
        arguments["server_settings"] = {**arguments.get("server_settings", {}), "application_name": name}
        if self.pooled or not prepared:
            arguments["statement_cache_size"] = 0
        else:
            # By default a statement is prepared again every five minutes, also in the middle of a batch.
            arguments["max_cached_statement_lifetime"] = 0
        connection = await self._first_usable(arguments)
        _keep_alive(connection)
        return connection

    async def _first_usable(self, arguments: dict[str, Any]) -> Any:
        """A connection to the first host that can be used, beginning with one that could the last time.

        Not by asyncpg's own list: its timeout is for all hosts together, and its error tells of the last one.
        """
        failures: dict[str, Exception] = {}
        for wanted in _passes(arguments.get("target_session_attrs")):
            for number in _beginning_with(self._first, len(self._hosts)):
                host = self._hosts[number]
                try:
                    connection = await self._entered({**arguments, **host, "target_session_attrs": wanted})
                except _CONNECTING as error:
                    if len(self._hosts) == 1 or not is_lost(error):
                        raise translated(error, self._describe(_address(host))) from error
                    failures[_address(host)] = error
                    if number == self._first:
                        self._first = (number + 1) % len(self._hosts)
                else:
                    self._first = number
                    return connection
        raise unreachable(failures, self.where) from next(iter(failures.values()))

    async def _entered(self, arguments: dict[str, Any]) -> Any:
        try:
            return await asyncpg.connect(**arguments, connection_class=_Connection)
        except _CONNECTING as error:
            if not (self._tries_plain and refuses_tls(error)):
                raise
        return await asyncpg.connect(**{**arguments, "ssl": False}, connection_class=_Connection)


async def _is_direct(connection: Any, session: Mapping[str, str]) -> bool:
    """Set the session up, unless it is a pooler's: others would get the settings."""
    settings = ", ".join(
        f"pg_catalog.set_config('{name}', '{value}', false)" for name, value in session.items()
    )
    backend = _BACKEND.format(pid=connection.get_server_pid())
    status: str = await connection.execute(f"SELECT {settings} WHERE {backend}", timeout=CONNECT_SECONDS)
    return status != "SELECT 0"


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
    if (number := getattr(socket, "TCP_USER_TIMEOUT", None)) is not None:
        sock.setsockopt(socket.IPPROTO_TCP, number, _UNACKNOWLEDGED_MS)


def _passes(wanted: str | None) -> tuple[str | None, ...]:
    """What is asked of each host, in one round through all of them after the other."""
    return ("standby", "any") if wanted == "prefer-standby" else (wanted,)


def _beginning_with(number: int, count: int) -> list[int]:
    return [number, *(other for other in range(count) if other != number)]


def _address(host: Mapping[str, Any]) -> str:
    name = host.get("host") or os.environ.get("PGHOST") or "localhost"
    port = host.get("port") or os.environ.get("PGPORT") or 5432
    return str(name) if name.startswith("/") else f"{bracketed(name)}:{port}"
