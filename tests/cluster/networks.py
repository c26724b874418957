"""The addresses of a cluster. All but the link to the host exist only inside the node's own network."""

import json
import random
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

PODS = IPv4Network("10.244.0.0/16")
SERVICES = IPv4Network("10.96.0.0/16")
BRIDGE = "pods"
BRIDGE_ADDRESS = PODS[1]
KUBERNETES_ADDRESS = SERVICES[1]
"""Where pods find the API: the Service of that name has the first address."""

_LINKS = IPv4Network("198.18.0.0/15")
"""Set aside for benchmarks of network equipment: nobody's machines are there."""
_LINK_PREFIX = 30
_ASK_SECONDS = 10


@dataclass(frozen=True)
class Link:
    """The network between the host and the node, with nobody else in it."""

    network: IPv4Network

    @property
    def host(self) -> IPv4Address:
        return self.network[1]

    @property
    def node(self) -> IPv4Address:
        """What the node is known by: its API, its kubelet and its DNS."""
        return self.network[2]


def free_link(taken: Sequence[IPv4Network]) -> Link:
    """A link that overlaps with none of the networks of this host."""
    count = 1 << (_LINK_PREFIX - _LINKS.prefixlen)
    for number in random.sample(range(count), count):
        network = IPv4Network((int(_LINKS.network_address) + number * 4, _LINK_PREFIX))
        if not any(network.overlaps(other) for other in taken):
            return Link(network)
    raise OSError(f"this host has routes to all of {_LINKS}: no link to a node is free")


def taken_networks(path: str) -> list[IPv4Network]:
    """The networks that this host has a route to, but for the default one."""
    said = subprocess.run(
        ["ip", "-json", "-4", "route", "show"],
        env={"PATH": path},
        capture_output=True,
        timeout=_ASK_SECONDS,
        check=True,
    )
    return [IPv4Network(route["dst"]) for route in json.loads(said.stdout) if route["dst"] != "default"]
