"""What a Postgres URL, in any of its dialects, means to asyncpg."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

from outbox_core.database_errors import DatabaseURLError
from outbox_core.url_hosts import is_ipv6, partition_hosts

_SCHEMES = ("postgresql", "postgres")
_DEFAULT_PORT = 5432

_DSN_ONLY = (
    "sslcert",
    "sslkey",
    "sslrootcert",
    "sslcrl",
    "sslpassword",
    "sslnegotiation",
    "ssl_min_protocol_version",
    "ssl_max_protocol_version",
)
"""What asyncpg takes from a DSN, and has no argument for."""

_ARGUMENTS = ("passfile", "service", "servicefile", "krbsrvname", "gsslib", "target_session_attrs")
"""What asyncpg calls the same."""

_IGNORED = (
    "async_fallback",
    "channel_binding",
    "fallback_application_name",
    "gssencmode",
    "keepalives",
    "keepalives_count",
    "keepalives_idle",
    "keepalives_interval",
    "load_balance_hosts",
    "prepared_statement_name_func",
    "sslcompression",
    "sslsni",
    "tcp_user_timeout",
)
"""What libpq or SQLAlchemy read, and asyncpg would send to the server, which would refuse it."""

_CACHE_SIZES = ("statement_cache_size", "prepared_statement_cache_size")
_SSL_WORDS = {"true": "require", "on": "require", "1": "require", "false": "disable", "off": "disable"}
_BRACKETED = re.compile(r"\[(?P<name>[^\[\]]*)\](:(?P<port>.*))?", re.DOTALL)
_TRUE = ("true", "on", "1", "yes")


def connect_arguments(url: str) -> dict[str, Any]:
    """The keyword arguments of `asyncpg.connect` for this URL.

    It reads `postgresql://` and `postgres://` with the parameters of libpq, and what SQLAlchemy makes of
    them: `postgresql+asyncpg://`, `+psycopg`, `+psycopg2`. A parameter that nobody knows is a setting of the
    server.
    """
    before, address, after = partition_hosts(url)
    # `urlsplit` knows one host only.
    parts = _split(f"{before}{after}")
    query = _query(parts.query)
    user, _, password = parts.netloc.removesuffix("@").partition(":")
    named = {name: query.pop(name, "") for name in ("user", "password", "dbname", "database")}
    arguments = {
        **_hosts(unquote(address), query.pop("host", ""), query.pop("port", "")),
        "user": unquote(user) or named["user"],
        "password": unquote(password) or named["password"],
        "database": unquote(parts.path.removeprefix("/")) or named["dbname"] or named["database"],
        **_options(query),
    }
    return {name: value for name, value in arguments.items() if value not in (None, "", {})}


def hosts_of(arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The arguments `host` and `port` of `asyncpg.connect` for each host; without any, none."""
    hosts, ports = arguments.get("host"), arguments.get("port")
    if hosts is None:
        return [{}]
    names = hosts if isinstance(hosts, list) else [hosts]
    numbers = ports if isinstance(ports, list) else [ports] * len(names)
    return [
        {"host": name} if number is None else {"host": name, "port": number}
        for name, number in zip(names, numbers, strict=True)
    ]


def url_of(source: object) -> str:
    """The URL of an SQLAlchemy engine, sync or async, or of an SQLAlchemy URL; a text is itself.

    Duck-typed, because SQLAlchemy need not be installed.
    """
    if isinstance(source, str):
        return source
    url = getattr(source, "url", source)
    if not hasattr(url, "render_as_string"):
        raise TypeError(
            f"cannot connect to a {type(source).__name__}; give a postgresql:// URL or an SQLAlchemy engine"
        )
    return str(url.render_as_string(hide_password=False))


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
    except ValueError:
        # Python's own words quote the URL, and with it the password.
        raise DatabaseURLError(
            "the database URL cannot be read; percent-encode what is special in its password, such as [ and ]"
        ) from None
    if parts.scheme.partition("+")[0] not in _SCHEMES or "://" not in url:
        raise DatabaseURLError(
            "the database URL is not one of Postgres; begin it with postgresql:// or postgres://"
        )
    if parts.fragment:
        raise DatabaseURLError("the database URL contains a #; in a password write it as %23")
    return parts


def _query(text: str) -> dict[str, str]:
    """The parameters, with the hosts of SQLAlchemy's `?host=a:5432&host=b:5432` as one list."""
    query: dict[str, str] = {}
    for name, value in parse_qsl(text):
        is_list = name in ("host", "port") and name in query
        query[name] = f"{query[name]},{value}" if is_list else value
    return query


def _hosts(address: str, hosts: str, ports: str) -> dict[str, Any]:
    """Host and port, or lists of them, from the URL's authority or from its parameters."""
    found = [_host_and_port(spec) for spec in (address or hosts).split(",")]
    names = [name for name, _ in found if name]
    if 0 < len(names) < len(found):
        raise DatabaseURLError("the database URL lists an empty host; write host1,host2")
    texts = [port for _, port in found]
    if ports:
        given = ports.split(",")
        texts = given * len(found) if len(given) == 1 else given
    if len(texts) != len(found):
        raise DatabaseURLError(
            f"the database URL lists {len(found)} hosts and {len(texts)} ports; "
            "write one port, or one for each host"
        )
    # Without any, it is left to PGPORT.
    numbers = [_port(text) if text else _DEFAULT_PORT for text in texts] if any(texts) else []
    return {
        "host": names[0] if len(names) == 1 else names or None,
        "port": numbers[0] if len(numbers) == 1 else numbers or None,
    }


def _host_and_port(spec: str) -> tuple[str, str]:
    if spec.startswith("/"):
        return spec, ""
    if "[" in spec or "]" in spec:
        found = _BRACKETED.fullmatch(spec)
        if found is None or not is_ipv6(found["name"]):
            raise DatabaseURLError(
                "the database URL has a host in brackets that cannot be read; write [::1]:5432"
            )
        return found["name"], found["port"] or ""
    name, _, port = spec.partition(":")
    return name, port


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        # Not quoted: where a / in a password is not encoded, this is the beginning of the password.
        raise DatabaseURLError(
            "the port in the database URL is no number; write host:5432, "
            "and percent-encode what is special in the password, such as / and @"
        )
    return int(text)


def _options(query: dict[str, str]) -> dict[str, Any]:
    """The parameters that are neither address nor credentials."""
    ssl, sslmode = query.pop("ssl", ""), query.pop("sslmode", "")
    files = {name: query.pop(name) for name in _DSN_ONLY if name in query}
    timeouts = [_seconds(name, query.pop(name, "")) for name in ("connect_timeout", "timeout")]
    return {
        "ssl": sslmode or _SSL_WORDS.get(ssl.lower(), ssl),
        "dsn": f"postgresql://?{urlencode(files)}" if files else None,
        "timeout": next(filter(None, timeouts), None),
        "command_timeout": _seconds("command_timeout", query.pop("command_timeout", "")),
        "statement_cache_size": _cache_size(query),
        **{name: query.pop(name) for name in _ARGUMENTS if name in query},
        "server_settings": {name: value for name, value in query.items() if name not in _IGNORED},
    }


def _cache_size(query: dict[str, str]) -> int | None:
    """0 where the URL says that prepared statements must not be kept."""
    sizes = [query.pop(name) for name in _CACHE_SIZES if name in query]
    # What the URLs of hosted poolers carry.
    is_pooled = query.pop("pgbouncer", "").lower() in _TRUE
    return 0 if is_pooled or "0" in sizes else None


def _seconds(name: str, text: str) -> float | None:
    try:
        seconds = float(text or 0)
    except ValueError:
        raise DatabaseURLError(
            f"{name} in the database URL is no number of seconds; write {name}=10"
        ) from None
    # To libpq, zero and less mean no limit; a process that waits for ever helps nobody.
    return seconds if seconds > 0 else None
