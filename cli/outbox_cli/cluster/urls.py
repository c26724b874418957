"""URLs between the Secrets of a cluster and the machine of a person. Pure."""

import base64
import re
import ssl
from dataclasses import dataclass
from urllib.parse import urlencode, urlsplit, urlunsplit

from outbox_core.url_hosts import partition_hosts
from outbox_operator.broker.access import BrokerAccess
from outbox_operator.service_hosts import seen_from_elsewhere

_PORTS = {"amqp": 5672, "amqps": 5671, "postgresql": 5432, "postgres": 5432}
_WORD = "[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_SERVICE = re.compile(rf"(.+\.)?(?P<name>{_WORD})\.(?P<namespace>{_WORD})\.svc(\..+)?", re.IGNORECASE)
_SHORT_SERVICE = re.compile(rf"(?P<name>{_WORD})\.(?P<namespace>{_WORD})", re.IGNORECASE)
_CERTIFICATE = re.compile("-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Service:
    """A Service of the cluster that a URL leads to."""

    name: str
    """Its name."""
    namespace: str
    """Its namespace."""
    host: str
    """As the URL has it."""
    port: int
    """The port."""
    scheme: str
    """What is spoken there."""

    def unreachable(self, what: str, option: str) -> str:
        """That nobody outside of the cluster knows it, with the way that there is."""
        forward = (
            f"kubectl port-forward --namespace {self.namespace} service/{self.name} {self.port}:{self.port}"
        )
        return (
            f"{what} is the Service {self.host}, which is known inside of the cluster only; run `{forward}`, "
            f"and add {option} {self.scheme}://localhost:{self.port}"
        )


def broker_url(access: BrokerAccess, namespace: str) -> str:
    """The URL of a broker, with the CA in it where it has one of its own."""
    url = seen_from_elsewhere(access.uri(), namespace)
    if access.ca is None:
        return url
    certificates = b"".join(map(ssl.PEM_cert_to_DER_cert, _CERTIFICATE.findall(access.ca)))
    return f"{url}?{urlencode({'cadata': base64.b64encode(certificates).decode()})}"


def with_login(given: str, known: str) -> str:
    """The URL that a person gave, with the login and the path of the one that is known, where it has none."""
    (before, hosts, after), (known_before, _, known_after) = partition_hosts(given), partition_hosts(known)
    if "@" in before:
        return given
    mine, other = urlsplit(f"{before}{after}"), urlsplit(f"{known_before}{known_after}")
    path = mine.path if mine.path.strip("/") else other.path
    parts = mine._replace(netloc=f"{other.netloc}{hosts}", path=path, query=mine.query or other.query)
    return urlunsplit(parts)


def service_of(url: str) -> Service | None:
    """The Service that a URL's host is by its name, or None."""
    before, hosts, _ = partition_hosts(url)
    # Of several hosts the first: they are of one kind.
    host, _, port = hosts.partition(",")[0].partition(":")
    match = _SERVICE.fullmatch(host) or _SHORT_SERVICE.fullmatch(host)
    if match is None:
        return None
    scheme = before.partition("://")[0].partition("+")[0]
    number = int(port) if port.isdecimal() else _PORTS.get(scheme, 0)
    return Service(match["name"], match["namespace"], host, number, scheme)
