"""What can go wrong with a database, in words that say what to do about it, and never a password."""

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass

import asyncpg


class DatabaseError(Exception):
    """The database cannot be used."""


class DatabaseURLError(DatabaseError, ValueError):
    """The URL is not one of Postgres, or cannot be read."""


class AuthenticationError(DatabaseError):
    """The server does not let this user in."""


class DatabaseMissingError(DatabaseError):
    """The server has no such database."""


class AccessDeniedError(DatabaseError):
    """The user may not connect to this database."""


class UnreachableError(DatabaseError):
    """Nobody answers, or not now: refused, timed out, unknown host, starting up, no connection to spare."""


class TLSError(DatabaseError):
    """The two sides cannot agree on an encrypted connection."""


_ENDED = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.DatabaseDroppedError,
    asyncpg.IdleSessionTimeoutError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.TooManyConnectionsError,
    # After a failover the session is left on what is a standby now.
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.InternalClientError,
    UnreachableError,
    OSError,
)
"""Errors after which a session is of no more use. OSError includes every timeout."""

_CLOSED = re.compile(r"connection (is|was|has been) (closed|released)|underlying connection", re.IGNORECASE)


_POOLED = (asyncpg.InvalidSQLStatementNameError, asyncpg.DuplicatePreparedStatementError)


def tells_of_pooler(error: BaseException) -> bool:
    """Whether a prepared statement was not where it was left: a pooler gives each transaction any session."""
    return isinstance(error, _POOLED)


def is_lost(error: BaseException) -> bool:
    """Whether the connection failed, so that a new one is worth trying; a statement's own error is none."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(is_lost, error.exceptions))
    if isinstance(error, asyncpg.InterfaceError):
        # asyncpg has one class for a closed connection and for a wrong use of an open one.
        return bool(_CLOSED.search(str(error)))
    return isinstance(error, _ENDED)


def translated(error: Exception, where: str) -> DatabaseError:
    """Why connecting failed, and what to do about it. `where` names host, database and user."""
    cause = cause_of(error)
    for diagnosis in _DIAGNOSES:
        if isinstance(error, diagnosis.symptom):
            return diagnosis.kind(f"{where}: {cause}; {diagnosis.cure}")
    return DatabaseError(f"{where}: {cause}; check the parameters of the URL")


def unreachable(failures: Mapping[str, Exception], where: str) -> UnreachableError:
    """That no host of several can be used, each with its own reason; `failures` is by host."""
    reasons = ", ".join(f"{host}: {cause_of(error)}" for host, error in failures.items())
    return UnreachableError(
        f"{where}: no host can be used ({reasons}); check that one of them runs and can be reached, and that "
        "it is what target_session_attrs asks for, read-write unless the URL says otherwise"
    )


def cause_of(error: Exception) -> str:
    """What an error of connecting says, in one line."""
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        return "it is not what target_session_attrs asks for"
    lines = str(error).splitlines()
    return lines[0].rstrip(".") if lines else "no answer in time"


@dataclass(frozen=True)
class _Diagnosis:
    symptom: type[Exception]
    """What asyncpg raised."""
    kind: type[DatabaseError]
    """What we call it."""
    cure: str
    """What to do next."""


_DIAGNOSES = (
    _Diagnosis(asyncpg.InvalidPasswordError, AuthenticationError, "check the user and the password"),
    _Diagnosis(
        asyncpg.InvalidAuthorizationSpecificationError,
        AuthenticationError,
        "check the user, and the server's pg_hba.conf for this host and its encryption",
    ),
    _Diagnosis(
        asyncpg.InvalidCatalogNameError,
        DatabaseMissingError,
        "create the database, or correct its name in the URL",
    ),
    _Diagnosis(
        asyncpg.InsufficientPrivilegeError, AccessDeniedError, "run GRANT CONNECT ON DATABASE … TO this user"
    ),
    _Diagnosis(
        asyncpg.TooManyConnectionsError,
        UnreachableError,
        "raise max_connections or the user's limit, or close other connections",
    ),
    _Diagnosis(asyncpg.CannotConnectNowError, UnreachableError, "wait until the server has started"),
    _Diagnosis(
        asyncpg.TargetServerAttributeNotMatched,
        UnreachableError,
        "wait until a server is promoted, or correct target_session_attrs in the URL",
    ),
    _Diagnosis(ssl.SSLError, TLSError, "check sslmode and sslrootcert in the URL"),
    _Diagnosis(
        FileNotFoundError,
        UnreachableError,
        "check the folder of the server's socket, or the certificate files that the URL names",
    ),
    _Diagnosis(
        OSError, UnreachableError, "check the host, the port and firewalls, and that the server is running"
    ),
    _Diagnosis(
        asyncpg.PostgresConnectionError, UnreachableError, "check that it is a Postgres, and the server's log"
    ),
)
"""The first that fits is the one: what is more special comes first."""
