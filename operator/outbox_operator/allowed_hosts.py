"""The hosts that resources may name: those that an administrator lists, or whose addresses are listed."""

import asyncio
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import TypeAlias

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import DefaultResolver

from outbox_core.environment import SettingError

Network: TypeAlias = IPv4Network | IPv6Network

_RESOLVE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class AllowedHosts:
    """What may be named; everything if nothing is listed."""

    networks: tuple[Network, ...] = ()
    """Networks in which all addresses of a host must be."""
    names: tuple[str, ...] = ()
    """Names of hosts; one that begins with `*.` stands for all below it."""

    @classmethod
    def parse(cls, entries: Iterable[str]) -> "AllowedHosts":
        networks: list[Network] = []
        names: list[str] = []
        for entry in entries:
            try:
                networks.append(ip_network(entry, strict=False))
            except ValueError:
                name = entry.lower().rstrip(".")
                if not name.removeprefix("*.") or set(name.removeprefix("*.")) & set("*/:@ "):
                    raise SettingError(
                        f"allowed_hosts has {entry!r}, which is neither a host's name, *.NAME, an address "
                        "nor a network such as 10.0.0.0/8; correct it"
                    ) from None
                names.append(name)
        return cls(tuple(networks), tuple(names))

    @property
    def is_everything(self) -> bool:
        return not self.networks and not self.names

    async def refused(self, hosts: Sequence[str]) -> str | None:
        """The first of these hosts that may not be named, or whose addresses are not known now; else None."""
        if self.is_everything:
            return None
        for host in hosts:
            if not self._has_name(host) and not self._has_all(await _addresses(host)):
                return host
        return None

    def has(self, host: str, address: str) -> bool:
        """Whether a connection to this address of a host may be made."""
        return self.is_everything or self._has_name(host) or self._has_all([address])

    def _has_name(self, host: str) -> bool:
        name = host.lower().rstrip(".")
        return any(name == each or (each[0] == "*" and name.endswith(each[1:])) for each in self.names)

    def _has_all(self, addresses: Sequence[str]) -> bool:
        found = [_plain(address) for address in addresses]
        return bool(found) and all(any(each in network for network in self.networks) for each in found)


class AllowedResolver(AbstractResolver):
    """Gives the allowed addresses of a host alone: the DNS may answer otherwise than when it was checked."""

    def __init__(self, allowed: AllowedHosts) -> None:
        self._allowed = allowed
        self._resolver = DefaultResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await self._resolver.resolve(host, port, family)
        if allowed := [each for each in found if self._allowed.has(host, each["host"])]:
            return allowed
        raise OSError(None, "its addresses are not among the hosts that the operator is allowed")

    async def close(self) -> None:
        await self._resolver.close()


def _plain(address: str) -> object:
    parsed = ip_address(address.partition("%")[0])
    mapped = getattr(parsed, "ipv4_mapped", None)
    return parsed if mapped is None else mapped


async def _addresses(host: str) -> list[str]:
    try:
        async with asyncio.timeout(_RESOLVE_SECONDS):
            found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return [str(each[4][0]) for each in found]
