"""Where a broker is and who we are there, without the password: what may be shown to people."""

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from outbox_core.url_hosts import HostPort, split_hosts

_PORTS = {"amqp": 5672, "amqps": 5671}


class DuplicateHostError(ValueError):
    """A URL lists a host twice."""


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """One host of a broker's URL, but for the password."""

    host: str
    """A name or an IP address."""
    port: int
    """5672, or 5671 with TLS, unless named."""
    vhost: str
    """The virtual host; `/` unless named."""
    user: str
    """The user's name; `guest` unless named."""

    @classmethod
    def parse(cls, url: str) -> "BrokerAddress":
        """From `amqp(s)://user:password@host:port/vhost`, or a ValueError that does not repeat it.

        `broker_urls` makes such URLs from one that lists several hosts.
        """
        try:
            parts = urlsplit(url)
            host, port, user = parts.hostname, parts.port, parts.username
        except ValueError:
            # Its text may hold a piece of the password.
            host = port = user = None
        if not host or "," in host or parts.scheme not in _PORTS:
            raise ValueError(
                "the broker's URL is malformed: it must be amqp://user:password@host:port/vhost (or amqps), "
                "with special characters in names and in the password percent-encoded"
            ) from None
        return cls(
            host=host,
            port=port or _PORTS[parts.scheme],
            vhost=unquote(parts.path[1:]) or "/",
            user=unquote(user) if user else "guest",
        )

    @property
    def host_port(self) -> HostPort:
        return HostPort(self.host, self.port)

    def __str__(self) -> str:
        """For errors and logs."""
        return describe([self])


def describe(addresses: Sequence[BrokerAddress]) -> str:
    """What errors and logs call a broker that has these addresses."""
    hosts = ",".join(str(address.host_port) for address in addresses)
    return f'broker {hosts}, vhost "{addresses[0].vhost}", user "{addresses[0].user}"'


def broker_urls(url: str) -> tuple[str, ...]:
    """A URL for each host of a broker's URL, as `amqp://user:password@a,b:5673,c/vhost`.

    A URL with one host is itself. A ValueError does not repeat the URL.
    """
    urls = split_hosts(url)
    places = {BrokerAddress.parse(each).host_port for each in urls}
    if len(places) < len(urls):
        raise DuplicateHostError(
            "the broker's URL lists a host twice, with the same port; remove one of the two"
        )
    return urls
