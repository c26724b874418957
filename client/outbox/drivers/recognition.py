"""Which driver a session belongs to, told from the names of its classes."""

from typing import Any

from outbox.drivers.asyncpg import AsyncpgConnection
from outbox.drivers.django import DjangoConnection
from outbox.drivers.driver import Driver
from outbox.drivers.psycopg import (
    AsyncPsycopgConnection,
    AsyncPsycopgCursor,
    PsycopgConnection,
    PsycopgCursor,
)
from outbox.drivers.psycopg2 import Psycopg2Connection, Psycopg2Cursor
from outbox.drivers.sqlalchemy import (
    SqlAlchemyAsyncConnection,
    SqlAlchemyAsyncScopedSession,
    SqlAlchemyAsyncSession,
    SqlAlchemyConnection,
    SqlAlchemySession,
)

SUPPORTED = (
    "SQLAlchemy AsyncSession, AsyncConnection, Session or Connection; an asyncpg connection; a psycopg (3) "
    "connection or cursor, sync or async; a psycopg2 connection or cursor; a Django connection or its alias"
)

_DRIVERS: dict[tuple[str, str], Driver] = {
    ("sqlalchemy", "AsyncSession"): SqlAlchemyAsyncSession(),
    ("sqlalchemy", "async_scoped_session"): SqlAlchemyAsyncScopedSession(),
    ("sqlalchemy", "AsyncConnection"): SqlAlchemyAsyncConnection(),
    ("sqlalchemy", "Session"): SqlAlchemySession(),
    ("sqlalchemy", "scoped_session"): SqlAlchemySession(),
    ("sqlalchemy", "Connection"): SqlAlchemyConnection(),
    ("asyncpg", "Connection"): AsyncpgConnection(),
    ("asyncpg", "PoolConnectionProxy"): AsyncpgConnection(),
    ("psycopg", "AsyncConnection"): AsyncPsycopgConnection(),
    ("psycopg", "AsyncCursor"): AsyncPsycopgCursor(),
    ("psycopg", "Connection"): PsycopgConnection(),
    ("psycopg", "Cursor"): PsycopgCursor(),
    ("psycopg2", "connection"): Psycopg2Connection(),
    ("psycopg2", "cursor"): Psycopg2Cursor(),
    ("django", "BaseDatabaseWrapper"): DjangoConnection(),
    ("django", "ConnectionProxy"): DjangoConnection(),
    ("builtins", "str"): DjangoConnection(),
}
_known: dict[type, Driver | None] = {}


def recognise(session: Any) -> Driver:
    """The driver for a session; a TypeError that names the supported ones for anything else."""
    kind = type(session)
    # A proxy, as tracing libraries put around connections, claims the class of what is in it.
    driver = _driver_of(kind) or _driver_of(session.__class__)
    if driver is None:
        raise TypeError(f"cannot emit through {_name(kind)}{_hint(kind)}; supported are: {SUPPORTED}")
    return driver


def _driver_of(kind: type) -> Driver | None:
    if kind not in _known:
        _known[kind] = _lookup(kind)
    return _known[kind]


def _lookup(kind: type) -> Driver | None:
    own: Driver | None = getattr(kind, "__outbox_driver__", None)
    if own is not None:
        return own
    for base in kind.__mro__:
        driver = _DRIVERS.get((base.__module__.partition(".")[0], base.__name__))
        if driver is not None:
            return driver
    return None


def _hint(kind: type) -> str:
    if "Engine" in kind.__name__ or "Pool" in kind.__name__ or "sessionmaker" in kind.__name__:
        return " (it has no transaction of its own: pass the session or connection taken from it)"
    return ""


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
