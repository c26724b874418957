"""Connecting by a URL that somebody else wrote: with nothing of this machine, and nothing of its user.

What a URL leaves open, asyncpg takes from PG… variables, `~/.pgpass` and `~/.postgresql`, for any server.
"""

import ssl
import sys
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import asyncpg

from outbox_core.database_errors import DatabaseURLError

_PORT = 5432
_FILES = ("passfile", "service", "servicefile", "sslcert", "sslkey", "sslrootcert", "sslcrl")
_PLAIN_ALLOWED = ("allow", "prefer")
_MODES = (*_PLAIN_ALLOWED, "require", "verify-ca", "verify-full")
_NO_KERBEROS = "gssapi" if sys.platform == "win32" else "sspi"
"""The library of the other platform: the user's ticket is a credential too, and asyncpg cannot do without."""


def files_named(arguments: Mapping[str, Any]) -> list[str]:
    """The parameters of a URL that name files."""
    return [name for name in _FILES if name in arguments or name in _query(arguments)]


def isolated(arguments: Mapping[str, Any], ca: str | None = None) -> dict[str, Any]:
    """The arguments of `asyncpg.connect` with all that it would look for on this machine given or refused.

    With `ca` the server's certificate is checked by it, and its name too unless the URL has `verify-ca`.
    """
    hosts = _hosts(arguments)
    if named := files_named(arguments):
        raise DatabaseURLError(
            f"the database URL names files, which are not those of this machine; leave {', '.join(named)} out"
        )
    if "user" not in arguments:
        raise DatabaseURLError(
            "the database URL names no user; write postgresql://USER:PASSWORD@HOST/DATABASE"
        )
    mode = arguments.get("ssl", "prefer")
    if ca is not None and mode != "verify-ca":
        mode = "verify-full"
    several = len(hosts) > 1
    return {
        "database": arguments["user"],
        "port": [_PORT] * len(hosts) if several else _PORT,
        "password": "",
        "target_session_attrs": "read-write" if several else "any",
        "krbsrvname": "postgres",
        **arguments,
        "gsslib": _NO_KERBEROS,
        # A context of our own: in one of asyncpg's are the certificates of PGSSLCERT and ~/.postgresql.
        "ssl": _context(mode, ca) if mode in _MODES else mode,
    }


def may_be_plain(arguments: Mapping[str, Any]) -> bool:
    """Whether the URL lets an isolated connection go without TLS if the server has none.

    asyncpg knows this of its own contexts only.
    """
    return arguments.get("ssl", "prefer") in _PLAIN_ALLOWED


def refuses_tls(error: BaseException) -> bool:
    """Whether the server has no TLS for us; only then is it tried without."""
    if isinstance(error, asyncpg.InvalidPasswordError):
        return False
    # asyncpg has no class of its own for a server that answers "no" to TLS.
    is_rejected = type(error) is ConnectionError
    return is_rejected or isinstance(error, ssl.SSLError | asyncpg.InvalidAuthorizationSpecificationError)


def _hosts(arguments: Mapping[str, Any]) -> list[str]:
    host = arguments.get("host") or ""
    hosts: list[str] = host if isinstance(host, list) else [host]
    if any(not each or each.startswith("/") for each in hosts):
        # A socket would say who we are: the user of this machine.
        raise DatabaseURLError(
            "the database URL names no host; write postgresql://USER:PASSWORD@HOST/DATABASE"
        )
    return hosts


def _query(arguments: Mapping[str, Any]) -> set[str]:
    return {name for name, _ in parse_qsl(urlsplit(arguments.get("dsn", "")).query)}


def _context(mode: str, ca: str | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = mode == "verify-full"
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["postgresql"])
    if ca is not None:
        # Bundles have names in comments between the certificates, and OpenSSL takes ASCII only.
        context.load_verify_locations(cadata=ca.encode("ascii", "ignore").decode())
    elif mode.startswith("verify-"):
        context.load_default_certs()
    else:
        context.verify_mode = ssl.CERT_NONE
    return context
