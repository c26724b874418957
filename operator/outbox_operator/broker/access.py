"""Where a broker is and who may enter: what the Secret of an OutboxRelay comes down to."""

from dataclasses import dataclass, field, replace
from urllib.parse import quote, urlencode, urlsplit

from outbox_core.url_hosts import HostPort, is_loopback, split_hosts


@dataclass(frozen=True, slots=True)
class VhostId:
    """A virtual host, whoever enters it."""

    management_url: str
    """The broker, by the address of its management API, without a slash at the end; it may list several
    hosts."""
    vhost: str
    """The virtual host's name."""

    def __str__(self) -> str:
        return f"vhost {self.vhost!r} of {self.management_url}"


@dataclass(frozen=True, slots=True)
class BrokerAccess:
    """A virtual host and somebody who may enter it."""

    host: str
    """The broker's host."""
    port: int
    """Its AMQP port."""
    tls: bool
    """Whether AMQP is spoken through TLS."""
    vhost: str
    """The virtual host."""
    username: str
    """The user."""
    password: str = field(repr=False)
    """The user's password."""
    management_url: str
    """The management API, without a slash at the end; it may list several hosts."""
    ca: str | None = field(default=None, repr=False)
    """The certificates by which the broker's own is checked, where they are not those of the system."""
    other_hosts: tuple[HostPort, ...] = ()
    """Further hosts of the broker, each with its AMQP port."""
    granted_vhosts: frozenset[str] | None = None
    """Of an administrator whose Secret is the operator's: the virtual hosts that it may be used for. None if
    the credentials are the tenant's own."""

    @property
    def is_secret_from_pods(self) -> bool:
        """Whether no pod may ever connect as this user."""
        return self.granted_vhosts is not None

    def at(self, vhost: str) -> "BrokerAccess | None":
        """The same user in another virtual host of the broker; None if that was not granted."""
        is_granted = self.granted_vhosts is None or vhost in self.granted_vhosts
        return replace(self, vhost=vhost) if is_granted else None

    @property
    def vhost_id(self) -> VhostId:
        return VhostId(self.management_url, self.vhost)

    @property
    def has_tls(self) -> bool:
        """Whether nothing is sent without TLS, by AMQP or to the management API."""
        return self.tls and self.management_url.startswith("https://")

    @property
    def is_plain(self) -> bool:
        """Whether it is entered over a network without TLS."""
        return not self.has_tls and not all(map(is_loopback, self.hosts))

    @property
    def hosts(self) -> tuple[str, ...]:
        """All hosts of its URLs: for AMQP, and for the management API."""
        management = (urlsplit(each).hostname or "" for each in split_hosts(self.management_url))
        return (self.host, *(each.host for each in self.other_hosts), *management)

    def uri(
        self, username: str | None = None, password: str | None = None, ca_file: str | None = None
    ) -> str:
        """The URL that a pod connects with, as this user or another; `ca_file` is where it finds the CA."""
        user = quote(self.username if username is None else username, safe="")
        secret = quote(self.password if password is None else password, safe="")
        hosts = ",".join(map(str, (HostPort(self.host, self.port), *self.other_hosts)))
        query = f"?{urlencode({'cafile': ca_file})}" if ca_file else ""
        scheme = "amqps" if self.tls else "amqp"
        return f"{scheme}://{user}:{secret}@{hosts}/{quote(self.vhost, safe='')}{query}"
