"""The hosts in a URL that may list several, as `scheme://user:password@a,b:5673,[::1]/path`. Pure.

`urlsplit` finds one host, and newer versions of it refuse several in brackets.
"""

from dataclasses import dataclass
from ipaddress import AddressValueError, IPv6Address, ip_address


@dataclass(frozen=True, slots=True)
class HostPort:
    """Where one server of a service is."""

    host: str
    """A name or an IP address, without brackets."""
    port: int
    """Its port."""

    def __str__(self) -> str:
        return f"{bracketed(self.host)}:{self.port}"


def partition_hosts(url: str) -> tuple[str, str, str]:
    """What precedes the hosts of a URL, the hosts themselves, and what follows them."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url, "", ""
    end = min((rest.index(sign) for sign in "/?#" if sign in rest), default=len(rest))
    login, at, hosts = rest[:end].rpartition("@")
    return f"{scheme}://{login}{at}", hosts, rest[end:]


def split_hosts(url: str) -> tuple[str, ...]:
    """A URL for each host that a URL lists; one with a single host is itself."""
    before, hosts, after = partition_hosts(url)
    return tuple(f"{before}{host}{after}" for host in hosts.split(","))


def is_loopback(host: str) -> bool:
    """Whether a name or an address is this machine, as far as it shows without looking names up."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def bracketed(host: str) -> str:
    """A host as a URL has it: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


def is_ipv6(host: str) -> bool:
    """Whether a host is an IPv6 address, without its brackets."""
    try:
        IPv6Address(host)
    except AddressValueError:
        return False
    return True
