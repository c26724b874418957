"""A database as the operator and the pods of a relay enter it. Pure."""

from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, urlencode

_TLS = ("ssl", "sslmode", "sslrootcert")


@dataclass(frozen=True, slots=True)
class DatabaseAccess:
    """Where a database is, who enters it, and by what its certificate is checked."""

    url: str = field(repr=False)
    """The URL in the Secret."""
    ca: str | None = field(default=None, repr=False)
    """The certificates by which the server's own is checked; None where the URL says how it is."""
    hosts: tuple[str, ...] = ()
    """All hosts of the URL."""
    sslmode: str = "prefer"
    """What the URL says of TLS."""

    @property
    def has_tls(self) -> bool:
        """Whether there is no connection without TLS."""
        return self.ca is not None or self.sslmode in ("require", "verify-ca", "verify-full")

    def pod_url(self, ca_file: str) -> str:
        """The URL that a pod connects with; `ca_file` is where it finds the CA, if there is one."""
        if self.ca is None:
            return self.url
        before, _, query = self.url.partition("?")
        kept = [(name, value) for name, value in parse_qsl(query) if name not in _TLS]
        mode = "verify-ca" if self.sslmode == "verify-ca" else "verify-full"
        tls = [("sslmode", mode), ("sslrootcert", ca_file)]
        return f"{before}?{urlencode([*kept, *tls], safe='/', quote_via=quote)}"
