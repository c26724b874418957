"""What a node needs of the machine that it runs on: Linux, root, and a few Debian packages."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from shutil import which

from outbox_cli.local import apt
from outbox_cli.local.errors import LocalServiceError

_INSTEAD = "give one with --cluster=KUBECONFIG, or install Docker and kind"
_PACKAGES = {
    "containerd": "containerd",
    "containerd-shim-runc-v2": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "mount": "mount",
}
"""The programs, and the Debian package that each is in."""
_PLUGINS = ("bridge", "host-local", "loopback", "portmap")
_PLUGIN_PACKAGE = "containernetworking-plugins"
_PLUGIN_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
# Root's PATH may lack these, depending on how somebody became root.
_SYSTEM_FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


@dataclass(frozen=True)
class Host:
    """A machine that can carry a node."""

    path: str
    """Where the node's programs find others: a PATH."""
    plugins: Path
    """The folder of the network plugins (CNI)."""


def find_host(progress: Callable[[str], None]) -> Host:
    """This machine, with the packages that were missing installed; an error says what cannot be had."""
    if sys.platform != "linux":
        raise LocalServiceError(f"a local Kubernetes node needs Linux, this is {sys.platform}; {_INSTEAD}")
    if os.geteuid() != 0:
        raise LocalServiceError(f"a local Kubernetes node needs root: run this with sudo; or {_INSTEAD}")
    path = os.pathsep.join(_SYSTEM_FOLDERS)
    if missing := _missing(path):
        if not which("apt-get"):
            raise LocalServiceError(
                f"a local Kubernetes node needs {', '.join(missing)}, and there is no apt-get here; "
                f"install them, or {_INSTEAD}"
            )
        progress(f"installing {', '.join(missing)} with apt-get (about a minute) …")
        apt.install(missing)
    if still := _missing(path):
        raise LocalServiceError(
            f"apt-get installed {', '.join(still)}, and still not all of its programs are there"
        )
    plugins = _plugins()
    assert plugins is not None, "looked for just now"
    return Host(path, plugins)


def _missing(path: str) -> list[str]:
    packages = {package for program, package in _PACKAGES.items() if not which(program, path=path)}
    return sorted(packages if _plugins() else {*packages, _PLUGIN_PACKAGE})


def _plugins() -> Path | None:
    complete = (
        folder for folder in _PLUGIN_FOLDERS if all((folder / plugin).exists() for plugin in _PLUGINS)
    )
    return next(complete, None)
