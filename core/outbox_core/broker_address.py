"""Where a broker is and who we are there, without the password: what may be shown to people."""

from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

_PORTS = {"amqp": 5672, "amqps": 5671}


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """A broker's URL but for the password."""

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
        """From `amqp(s)://user:password@host:port/vhost`, or a ValueError that does not repeat it."""
        try:
            parts = urlsplit(url)
            host, port, user = parts.hostname, parts.port, parts.username
        except ValueError:
            # Its text may hold a piece of the password.
            host = port = user = None
        if not host or parts.scheme not in _PORTS:
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

    def __str__(self) -> str:
        """For errors and logs."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f'broker {host}:{self.port}, vhost "{self.vhost}", user "{self.user}"'
