"""What the Secrets of an OutboxRelay come down to: a broker and a database to enter, or what is wrong.

Pure. A message names Secrets and keys, and never what is in them.
"""

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import replace
from urllib.parse import quote, unquote, urlsplit

from outbox_core.broker_address import BrokerAddress, DuplicateHostError, broker_urls
from outbox_core.database import DatabaseURLError, connect_arguments
from outbox_core.database_urls import hosts_of
from outbox_core.url_hosts import HostPort, partition_hosts, split_hosts
from outbox_operator.administrators import NAMESPACES, granted_vhosts, not_allowed
from outbox_operator.broker.access import BrokerAccess
from outbox_operator.conditions import Finding
from outbox_operator.database_access import DatabaseAccess
from outbox_operator.resources.condition import ConditionStatus, ConditionType
from outbox_operator.resources.references import SecretKeyRef
from outbox_operator.resources.relay import Broker, Database
from outbox_operator.secret_values import SecretValues, UnusableSecretError, is_host
from outbox_operator.service_hosts import host_seen_from_elsewhere, seen_from_elsewhere

_AMQP_PORT, _AMQPS_PORT, _POSTGRES_PORT = 5672, 5671, 5432
_HTTP_PORT, _HTTPS_PORT = 15672, 15671
_CA = "ca.crt"
_MOST_CA_BYTES = 512 * 1024

_BROKER_URI = f"amqp://USER:PASSWORD@HOST:{_AMQP_PORT}/VHOST"
_DATABASE_URI = f"postgresql://USER:PASSWORD@HOST:{_POSTGRES_PORT}/DATABASE"
_ENCODE = "percent-encode what is special in the password, such as / as %2F, ? as %3F, # as %23 and @ as %40"


def broker_access(
    broker: Broker, secret: Mapping[str, bytes] | None, ca: Mapping[str, bytes] | None, *, namespace: str
) -> BrokerAccess | Finding:
    """How the broker is entered, where `secret` and `ca` are the data of the Secrets that it refers to.

    Either is None where there is none. The key `uri` wins over `host`, `port`, `username`, `password` and
    `vhost`, and the spec over both.
    """
    assert broker.secret_ref is not None  # noqa: S101 - only called with one
    try:
        content = f"--from-literal=uri='{_BROKER_URI}'"
        values = SecretValues.of(broker.secret_ref.name, namespace, secret, content)
        found = _broker(values, wants_tls=broker.ca_secret_ref is not None)
        certificates = _certificates(broker.ca_secret_ref, ca, namespace, "broker")
    except UnusableSecretError as error:
        return error.finding
    management_url = (broker.management_url or found.management_url).rstrip("/")
    if not _is_url(management_url):
        return _NO_MANAGEMENT_URL
    return replace(
        found,
        vhost=broker.vhost or found.vhost,
        management_url=seen_from_elsewhere(management_url, namespace),
        ca=certificates,
    )


_NO_MANAGEMENT_URL = Finding(
    ConditionType.CREDENTIALS_VALID,
    ConditionStatus.FALSE,
    "InvalidUrl",
    "spec.broker.managementUrl is no URL that can be used; write http://HOST:PORT or https://HOST:PORT",
)


def administrator_access(
    name: str, secret: Mapping[str, bytes] | None, *, home: str, namespace: str, vhost: str
) -> BrokerAccess | Finding:
    """How a virtual host is entered for a namespace by a Secret in `home`, the operator's own namespace.

    All but the virtual host is what the Secret says, so that its password goes nowhere else.
    """
    try:
        content = f"--from-literal=uri='{_BROKER_URI}' --from-literal={NAMESPACES}='{namespace}: {vhost}'"
        values = SecretValues.of(name, home, secret, content)
        granted = granted_vhosts(values, namespace)
        if vhost not in granted:
            return not_allowed(name, namespace, vhost)
        found = _broker(values, wants_tls=bool(values.text(_CA, most_bytes=_MOST_CA_BYTES)))
        management_url = (values.text("managementUrl") or found.management_url).rstrip("/")
        if not _is_url(management_url):
            raise values.invalid("managementUrl", "is no URL; write http://HOST:PORT or https://HOST:PORT")
        certificates = _pem(values, _CA)
    except UnusableSecretError as error:
        return error.finding
    return replace(
        found,
        vhost=vhost,
        # To the tenant's pods, and to whoever reads a URL, a host of one word would be theirs.
        host=host_seen_from_elsewhere(found.host, home),
        other_hosts=tuple(
            HostPort(host_seen_from_elsewhere(each.host, home), each.port) for each in found.other_hosts
        ),
        management_url=seen_from_elsewhere(management_url, home),
        ca=certificates,
        granted_vhosts=granted,
    )


def database_access(
    database: Database, secret: Mapping[str, bytes] | None, ca: Mapping[str, bytes] | None, *, namespace: str
) -> DatabaseAccess | Finding:
    """As `database_url`, with the CA, where `ca` is the data of the Secret that has it."""
    url = database_url(database, secret, namespace=namespace)
    if isinstance(url, Finding):
        return url
    try:
        return access_of(url, _certificates(database.ca_secret_ref, ca, namespace, "database"))
    except UnusableSecretError as error:
        return error.finding


def access_of(url: str, ca: str | None = None) -> DatabaseAccess:
    """What a URL that can be used says."""
    arguments = connect_arguments(url)
    hosts = tuple(str(each.get("host", "")) for each in hosts_of(arguments))
    return DatabaseAccess(url, ca, hosts, str(arguments.get("ssl", "prefer")))


def database_url(database: Database, secret: Mapping[str, bytes] | None, *, namespace: str) -> str | Finding:
    """The URL by which the database is entered, where `secret` is the data of the Secret that it refers to.

    It is None where there is none. The key `uri` wins over `host`, `port`, `username`, `password` and
    `database`; `user` and `dbname`, as some operators of Postgres call them, will do.
    """
    try:
        content = f"--from-literal=uri='{_DATABASE_URI}'"
        values = SecretValues.of(database.secret_ref.name, namespace, secret, content)
        return _database_by_uri(values) if values.text("uri") else _database_by_keys(values)
    except UnusableSecretError as error:
        return error.finding


def _broker(values: SecretValues, *, wants_tls: bool) -> BrokerAccess:
    return _broker_by_uri(values) if values.text("uri") else _broker_by_keys(values, wants_tls=wants_tls)


def _broker_by_uri(values: SecretValues) -> BrokerAccess:
    uri = values.text("uri")
    values.check_hosts("uri", partition_hosts(uri)[1])
    try:
        urls = broker_urls(uri)
    except DuplicateHostError:
        raise values.invalid("uri", "lists a host twice; remove one of the two") from None
    except ValueError:
        raise values.invalid("uri", f"is no URL of a broker; write {_BROKER_URI}, and {_ENCODE}") from None
    addresses = [BrokerAddress.parse(url) for url in urls]
    if not all(is_host(address.host) for address in addresses):
        raise values.invalid("uri", f"names no valid host; write {_BROKER_URI}")
    _check_encoding(uri, values)
    parts = urlsplit(urls[0])
    if parts.username and not parts.password:
        raise values.invalid("uri", f"has a user and no password; write {_BROKER_URI}")
    first, *others = addresses
    tls = parts.scheme == "amqps"
    return BrokerAccess(
        host=first.host,
        port=first.port,
        tls=tls,
        vhost=first.vhost,
        username=first.user,
        password=unquote(parts.password or "guest"),
        management_url=default_management_url([address.host for address in addresses], tls=tls),
        other_hosts=tuple(address.host_port for address in others),
    )


def _broker_by_keys(values: SecretValues, *, wants_tls: bool) -> BrokerAccess:
    _, username, password = values.all_of("host", "username", "password", instead_of=_BROKER_URI)
    port = values.port(_AMQPS_PORT if wants_tls else _AMQP_PORT)
    # What these two ports speak is known. At any other, whoever gives certificates to check wants TLS.
    tls = port == _AMQPS_PORT or (wants_tls and port != _AMQP_PORT)
    first, *others = values.hosts()
    return BrokerAccess(
        host=first,
        port=port,
        tls=tls,
        vhost=values.text("vhost") or "/",
        username=username,
        password=password,
        management_url=default_management_url([first, *others], tls=tls),
        other_hosts=tuple(HostPort(host, port) for host in others),
    )


def default_management_url(hosts: Sequence[str], *, tls: bool) -> str:
    """Where the management API is by default: at every host, in an order that does not depend on theirs."""
    scheme, port = ("https", _HTTPS_PORT) if tls else ("http", _HTTP_PORT)
    # It is the broker's identity: the same hosts in another order are the same broker.
    places = sorted({str(HostPort(host, port)) for host in hosts})
    return f"{scheme}://{','.join(places)}"


def _database_by_uri(values: SecretValues) -> str:
    uri = values.text("uri")
    values.check_hosts("uri", partition_hosts(uri)[1])
    try:
        arguments = connect_arguments(uri)
    except DatabaseURLError as error:
        raise values.invalid("uri", f"cannot be used: {error}") from None
    _check_encoding(uri, values)
    host = arguments.get("host") or ""
    if not host or any(each.startswith("/") for each in ([host] if isinstance(host, str) else host)):
        raise values.invalid("uri", f"names no host; write {_DATABASE_URI}")
    if not arguments.get("user"):
        raise values.invalid("uri", f"names no user; write {_DATABASE_URI}")
    return uri


def _database_by_keys(values: SecretValues) -> str:
    _, *texts = values.all_of(
        "host", ("username", "user"), "password", ("database", "dbname"), instead_of=_DATABASE_URI
    )
    user, password, name = (quote(text, safe="") for text in texts)
    port = values.port(_POSTGRES_PORT)
    hosts = ",".join(str(HostPort(host, port)) for host in values.hosts())
    return f"postgresql://{user}:{password}@{hosts}/{name}"


def _check_encoding(uri: str, values: SecretValues) -> None:
    """Refuse a URL that ends inside its password: the rest of that would be taken for a name, and shown."""
    try:
        parts = urlsplit(split_hosts(uri)[0])
    except ValueError:
        # A bracket, or a sign that is another one after Unicode's normalization, such as a slash or an @. The
        # error's text may hold a piece of the password.
        raise values.invalid(
            "uri", f"is no URL; write plain letters in its host, and {_ENCODE}, [ as %5B and ] as %5D"
        ) from None
    if parts.fragment or "@" in parts.path or ("@" in parts.query and "@" not in parts.netloc):
        raise values.invalid("uri", f"has a user or password that is cut; {_ENCODE}")


def _certificates(
    ref: SecretKeyRef | None, data: Mapping[str, bytes] | None, namespace: str, part: str
) -> str | None:
    if ref is None:
        return None
    values = SecretValues.of(ref.name, namespace, data, f"--from-file={ref.key}=CERTIFICATES.pem")
    text = _pem(values, ref.key)
    if text is None:
        raise UnusableSecretError(
            "KeyMissing",
            f"{values.described} has no {ref.key}: it has {values.keys}; add it, or name the key that "
            f"holds the certificates in spec.{part}.caSecretRef.key",
        )
    return text


def _pem(values: SecretValues, key: str) -> str | None:
    text = values.text(key, most_bytes=_MOST_CA_BYTES)
    if not text:
        return None
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError, TypeError):
        raise values.invalid(key, "holds no certificates; write them in PEM, in ASCII alone") from None
    return text


def _is_url(url: str) -> bool:
    try:
        every = [urlsplit(each) for each in split_hosts(url)]
        # Reading the port raises a ValueError if it is none.
        return all(
            parts.scheme in ("http", "https")
            and is_host(parts.hostname or "")
            and parts.port != 0
            # A path of somebody's choice behind which ours is a mere argument leads to any service.
            and not (parts.query or parts.fragment or parts.username or parts.password)
            for parts in every
        )
    except ValueError:
        return False
