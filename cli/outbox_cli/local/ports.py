"""Free ports on 127.0.0.1 that stay ours while their server is down."""

import random
import socket
from pathlib import Path

_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_SPAN = 10_000
_LOWEST_UNPRIVILEGED = 1024


def free_ports(count: int) -> list[int]:
    """Distinct ports that nobody listens on.

    From below the kernel's range for outgoing connections where that is known: a client that keeps
    connecting to a stopped server's port inside that range sooner or later connects to itself, and then the
    server cannot have its port back.
    """
    bottom, top = _below_ephemeral()
    chosen: list[int] = []
    for port in random.sample(range(bottom, top), top - bottom):
        if _is_free(port):
            chosen.append(port)
        if len(chosen) == count:
            return chosen
    raise OSError(f"no {count} free ports between {bottom} and {top} on 127.0.0.1")


def _below_ephemeral() -> tuple[int, int]:
    try:
        lowest_ephemeral = int(_RANGE_FILE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        lowest_ephemeral = 32768
    if lowest_ephemeral - _SPAN < _LOWEST_UNPRIVILEGED:
        return 20_000, 30_000
    return lowest_ephemeral - _SPAN, lowest_ephemeral


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
