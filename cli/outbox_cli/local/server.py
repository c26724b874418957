"""What a caller may do with a service, whichever way it came here."""

from dataclasses import dataclass, field
from typing import NoReturn, Protocol

from outbox_cli.local.choice import Product
from outbox_cli.local.errors import LocalServiceError


class Postgres(Protocol):
    """A running Postgres."""

    title: str
    """The product and its version, for people."""

    @property
    def url(self) -> str:
        """Where to connect, with a superuser's credentials."""

    def boot(self) -> None:
        """Set it up on free ports and wait until it answers. `start()` of this package has done that."""

    def start(self) -> None:
        """Start it again after `stop` or `kill`, with the same URL and data, and wait until it answers."""

    def stop(self) -> None:
        """Shut it down in order and wait until all its processes are gone: an outage."""

    def kill(self) -> None:
        """SIGKILL it and all its processes: a crash."""

    def discard(self) -> None:
        """End it as fast as can be without leaving anything behind: the run is over, its data goes too."""


class RabbitMQ(Postgres, Protocol):
    """A running RabbitMQ, its URL naming an administrator and the vhost `/`."""

    @property
    def management_url(self) -> str:
        """The HTTP API, with the same credentials."""


@dataclass
class ForeignServer:
    """A service that somebody else runs: we use it, and leave it as it is."""

    product: Product
    url: str = field(repr=False)
    management_url: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        self.title = self.product.name

    def boot(self) -> None:
        """It runs already."""

    def start(self) -> NoReturn:
        """Refuse."""
        self._refuse("start")

    def stop(self) -> NoReturn:
        """Refuse."""
        self._refuse("stop")

    def kill(self) -> NoReturn:
        """Refuse."""
        self._refuse("kill")

    def discard(self) -> None:
        """It stays."""

    def _refuse(self, verb: str) -> NoReturn:
        raise LocalServiceError(
            f"cannot {verb} {self.product.name}: it was given by its URL ({self.product.variable}), so "
            f"somebody else runs it; start(environment={{}}) gives a private one"
        )
