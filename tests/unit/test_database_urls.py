"""What a URL means to asyncpg, what its errors say, and which errors mean a lost connection."""

import ssl
from typing import Any

import asyncpg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine

from outbox_core.database import (
    AccessDeniedError,
    AuthenticationError,
    Database,
    DatabaseError,
    DatabaseMissingError,
    DatabaseURLError,
    TLSError,
    UnreachableError,
    connect_arguments,
    is_lost,
)
from outbox_core.database_errors import translated

ALL = {"host": "db", "port": 5433, "user": "app", "password": "pw", "database": "shop"}


@pytest.mark.parametrize(
    ("url", "arguments"),
    [
        ("postgresql://app:pw@db:5433/shop", ALL),
        ("postgres://app:pw@db:5433/shop", ALL),
        ("postgresql+asyncpg://app:pw@db:5433/shop", ALL),
        ("postgresql+psycopg://app:pw@db:5433/shop", ALL),
        ("postgresql+psycopg2://app:pw@db:5433/shop", ALL),
        ("postgresql://", {}),
        ("postgresql://db", {"host": "db"}),
        ("postgresql:///shop", {"database": "shop"}),
        ("postgresql://app@/shop", {"user": "app", "database": "shop"}),
        # Encoded, and the @ that need not be.
        (
            "postgresql://a%40b:p%2Fw%3A@db/s%20h",
            {"host": "db", "user": "a@b", "password": "p/w:", "database": "s h"},
        ),
        ("postgresql://app:p@w@db", {"host": "db", "user": "app", "password": "p@w"}),
        # Addresses.
        ("postgresql://[fe80::1]:5433/shop", {"host": "fe80::1", "port": 5433, "database": "shop"}),
        ("postgresql://[::1]/shop", {"host": "::1", "database": "shop"}),
        ("postgresql:///shop?host=/run/pg", {"host": "/run/pg", "database": "shop"}),
        (
            "postgresql://app@/shop?host=/run/pg&port=5433",
            {"host": "/run/pg", "port": 5433, "user": "app", "database": "shop"},
        ),
        ("postgresql://%2Frun%2Fpg/shop", {"host": "/run/pg", "database": "shop"}),
        ("postgresql://a:1,b:2/shop", {"host": ["a", "b"], "port": [1, 2], "database": "shop"}),
        ("postgresql://a,b:2/shop", {"host": ["a", "b"], "port": [5432, 2], "database": "shop"}),
        ("postgresql://a,b/shop", {"host": ["a", "b"], "database": "shop"}),
        ("postgresql://[::1]:1,[::2]/shop", {"host": ["::1", "::2"], "port": [1, 5432], "database": "shop"}),
        (
            "postgresql://u%2C:p%40,w@a,b/shop",
            {"host": ["a", "b"], "user": "u,", "password": "p@,w", "database": "shop"},
        ),
        (
            "postgresql+asyncpg:///shop?host=a:1&host=b:2",
            {"host": ["a", "b"], "port": [1, 2], "database": "shop"},
        ),
        (
            "postgresql+asyncpg:///shop?host=a&host=b&port=1&port=2",
            {"host": ["a", "b"], "port": [1, 2], "database": "shop"},
        ),
        # Everything as parameters.
        ("postgresql://?host=db&port=5433&user=app&password=pw&dbname=shop", ALL),
        ("postgresql://?host=db&port=5433&user=app&password=pw&database=shop", ALL),
        # TLS.
        ("postgresql://db?sslmode=verify-full", {"host": "db", "ssl": "verify-full"}),
        ("postgresql+asyncpg://db?ssl=require", {"host": "db", "ssl": "require"}),
        ("postgresql+asyncpg://db?ssl=true", {"host": "db", "ssl": "require"}),
        ("postgresql+asyncpg://db?ssl=false", {"host": "db", "ssl": "disable"}),
        (
            "postgresql://db?sslmode=verify-full&sslrootcert=/ca.pem&sslcert=/a%20b.pem",
            {
                "host": "db",
                "ssl": "verify-full",
                "dsn": "postgresql://?sslcert=%2Fa+b.pem&sslrootcert=%2Fca.pem",
            },
        ),
        # Timeouts; to libpq 0 is no limit.
        ("postgresql://db?connect_timeout=3", {"host": "db", "timeout": 3.0}),
        ("postgresql://db?connect_timeout=0", {"host": "db"}),
        (
            "postgresql+asyncpg://db?timeout=3&command_timeout=7",
            {"host": "db", "timeout": 3.0, "command_timeout": 7.0},
        ),
        # Poolers.
        (
            "postgresql+asyncpg://db?prepared_statement_cache_size=0",
            {"host": "db", "statement_cache_size": 0},
        ),
        ("postgresql+asyncpg://db?prepared_statement_cache_size=500", {"host": "db"}),
        ("postgresql://db?pgbouncer=true", {"host": "db", "statement_cache_size": 0}),
        # The rest.
        (
            "postgresql://db?target_session_attrs=read-write",
            {"host": "db", "target_session_attrs": "read-write"},
        ),
        ("postgresql://db?application_name=x", {"host": "db", "server_settings": {"application_name": "x"}}),
        (
            "postgresql://db?options=-csearch_path%3Dshop",
            {"host": "db", "server_settings": {"options": "-csearch_path=shop"}},
        ),
        ("postgresql://db?channel_binding=require&gssencmode=disable&keepalives=1", {"host": "db"}),
    ],
)
def test_a_url_becomes_the_arguments_of_asyncpg(url: str, arguments: dict[str, Any]) -> None:
    assert connect_arguments(url) == arguments


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mysql://app:s3cret@db/shop", "not one of Postgres"),
        ("host=db password=s3cret", "not one of Postgres"),
        ("", "not one of Postgres"),
        ("postgresql://app:s3cret[@db/shop", "cannot be read; percent-encode"),
        ("postgresql://app:s3cret/x@db/shop", "port in the database URL is no number"),
        ("postgresql://app:s3cret#x@db/shop", "contains a #"),
        ("postgresql://app:s3cret@db:five/shop", "port in the database URL is no number"),
        ("postgresql://app:s3cret@db?connect_timeout=soon", "write connect_timeout=10"),
        ("postgresql://app:s3cret@a,,b/shop", "lists an empty host"),
        ("postgresql://app:s3cret@a,/shop", "lists an empty host"),
        ("postgresql://app:s3cret@a,b:five/shop", "port in the database URL is no number"),
        ("postgresql://app:s3cret@a,b,c/shop?port=1,2", "lists 3 hosts and 2 ports"),
        ("postgresql://app:s3cret@a,[::1/shop", "in brackets that cannot be read"),
    ],
)
def test_a_url_that_cannot_be_read_is_refused_without_quoting_it(url: str, words: str) -> None:
    with pytest.raises(DatabaseURLError, match=words) as caught:
        connect_arguments(url)
    assert "s3cret" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize(
    "source",
    [
        create_async_engine("postgresql+asyncpg://app:s3cret@db:5433/shop"),
        sqlalchemy.create_engine("postgresql+psycopg://app:s3cret@db:5433/shop"),
        sqlalchemy.make_url("postgresql+psycopg2://app:s3cret@db:5433/shop"),
        "postgresql://app:s3cret@db:5433/shop",
    ],
    ids=["async engine", "engine", "url", "text"],
)
def test_a_database_is_described_by_a_url_or_an_engine_and_never_shows_its_password(source: object) -> None:
    database = Database(source)
    assert database.where == "Postgres db:5433/shop (user app)"
    assert repr(database) == "<Database Postgres db:5433/shop (user app)>"


@pytest.mark.parametrize(
    ("url", "where"),
    [
        ("postgresql://a:1,b:2/shop", "Postgres a:1,b:2/shop"),
        ("postgresql:///shop?host=/run/pg", "Postgres /run/pg/shop"),
        ("postgresql://[::1]/shop", "Postgres [::1]:5432/shop"),
        ("postgresql://app@db", "Postgres db:5432/app (user app)"),
        ("postgresql://", "Postgres localhost:5432/"),
    ],
)
def test_an_address_reads_as_people_write_it(url: str, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGHOST", "PGPORT", "PGUSER", "PGDATABASE"):
        monkeypatch.delenv(name, raising=False)
    assert Database(url).where == where


def test_what_is_neither_url_nor_engine_is_refused() -> None:
    with pytest.raises(TypeError, match="cannot connect to a int; give a postgresql:// URL"):
        Database(5)


def test_a_url_that_keeps_no_prepared_statements_means_a_pooler() -> None:
    assert Database("postgresql+asyncpg://db?prepared_statement_cache_size=0").pooled
    assert not Database("postgresql://db").pooled


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (asyncpg.InvalidPasswordError("no"), AuthenticationError, "check the user and the password"),
        (asyncpg.InvalidAuthorizationSpecificationError("no"), AuthenticationError, "pg_hba.conf"),
        (asyncpg.InvalidCatalogNameError("no"), DatabaseMissingError, "create the database"),
        (asyncpg.InsufficientPrivilegeError("no"), AccessDeniedError, "GRANT CONNECT"),
        (asyncpg.TooManyConnectionsError("no"), UnreachableError, "max_connections"),
        (asyncpg.CannotConnectNowError("no"), UnreachableError, "wait until the server has started"),
        (asyncpg.ConnectionDoesNotExistError("no"), UnreachableError, "check that it is a Postgres"),
        (ssl.SSLCertVerificationError("no"), TLSError, "sslrootcert"),
        (FileNotFoundError("no"), UnreachableError, "certificate files"),
        (ConnectionRefusedError("no"), UnreachableError, "that the server is running"),
        (TimeoutError(), UnreachableError, "no answer in time; check the host"),
        (asyncpg.UndefinedObjectError("no"), DatabaseError, "parameters of the URL"),
        (asyncpg.TargetServerAttributeNotMatched("no"), UnreachableError, "wait until a server is promoted"),
    ],
)
def test_why_connecting_failed_comes_with_a_cure(error: Exception, kind: type[Exception], words: str) -> None:
    found = translated(error, "Postgres db:5432/shop")
    assert type(found) is kind
    assert str(found).startswith("Postgres db:5432/shop: ")
    assert words in str(found)


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (asyncpg.ConnectionDoesNotExistError("x"), True),
        (asyncpg.ProtocolViolationError("server conn crashed?"), True),
        (asyncpg.AdminShutdownError("x"), True),
        (asyncpg.CrashShutdownError("x"), True),
        (asyncpg.CannotConnectNowError("x"), True),
        (asyncpg.TooManyConnectionsError("x"), True),
        (asyncpg.IdleInTransactionSessionTimeoutError("x"), True),
        (asyncpg.ReadOnlySQLTransactionError("x"), True),
        (asyncpg.InterfaceError("connection is closed"), True),
        (asyncpg.InterfaceError("cannot call Connection.fetch(): connection has been released"), True),
        (ConnectionResetError(), True),
        (TimeoutError(), True),
        (UnreachableError("x"), True),
        (ExceptionGroup("x", [ValueError(), ConnectionResetError()]), True),
        (asyncpg.InterfaceError("cannot perform operation: another operation is in progress"), False),
        (asyncpg.UniqueViolationError("x"), False),
        (asyncpg.UndefinedTableError("x"), False),
        (asyncpg.DeadlockDetectedError("x"), False),
        (asyncpg.QueryCanceledError("x"), False),
        (asyncpg.DuplicatePreparedStatementError("x"), False),
        (AuthenticationError("x"), False),
        (DatabaseMissingError("x"), False),
        (ValueError("x"), False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_a_lost_connection_is_told_from_a_failed_statement(error: Exception, lost: bool) -> None:
    assert is_lost(error) is lost
