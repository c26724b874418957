"""A machine inside this one: namespaces of its own for processes, mounts and the network.

The first process in them holds them together. When it ends, however it ends, the kernel ends all others,
takes the mounts away and the network with its bridges, rules and addresses: nothing is tidied up one by one.
"""

import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from outbox_cli.local import processes, runfolder
from outbox_cli.local.daemon import Daemon
from outbox_cli.local.errors import LocalServiceError
from outbox_cli.local.processes import Process
from outbox_cli.local.runfolder import RunFolder
from tests.cluster.host import Host
from tests.cluster.networks import BRIDGE, BRIDGE_ADDRESS, PODS, SERVICES, Link

_START_SECONDS = 30
_COMMAND_SECONDS = 600
_INTERFACE_LENGTH = 15
_SET_UP = Path(__file__).parent / "machine.sh"
# Daemons start with a umask that would keep users of a pod from reading its /etc/hosts.
_ENTER = 'umask 022; ulimit -n 65536 2>/dev/null; cd "$0" && exec "$@"'


@dataclass(frozen=True)
class Namespaces:
    """Those of a machine that runs."""

    first: Process
    """The process that holds them."""
    path: str
    """Where programs are found in there."""

    def command(self, folder: Path, *command: str | Path) -> list[str | Path]:
        """What the host runs so that `command` runs inside, in `folder`."""
        enter = ["nsenter", f"--target={self.first.pid}", "--mount", "--pid", "--net", "--"]
        return [*enter, "/bin/sh", "-c", _ENTER, folder, *command]

    def run(self, *command: str | Path, text: IO[bytes] | None = None) -> str:
        """Run a short command inside and give what it prints; an error has what it said instead."""
        if not processes.is_alive(self.first):
            raise LocalServiceError(f"{command[0]}: the node is gone; start one: python -m tests.cluster up")
        return run(self.command(Path("/"), *command), self.path, text)


class Machine:
    """One machine, from its start to its end."""

    def __init__(self, run: RunFolder, host: Host, pause: Path, link: Link) -> None:
        self._run = run
        self._host = host
        self._pause = pause
        self._link = link
        self._folder = run.subfolder("machine")
        self._namespaces: Namespaces | None = None

    @property
    def namespaces(self) -> Namespaces:
        assert self._namespaces is not None, "the machine was not started"
        return self._namespaces

    def start(self, running: ExitStack) -> None:
        """Start it, with a network to the host and one for pods."""
        daemon = self._daemon()
        running.callback(daemon.kill)
        daemon.start()
        daemon.wait_until((self._folder / "ready").exists, _START_SECONDS)
        self._namespaces = Namespaces(self._first(), self._host.path)
        self._connect()

    def daemon(self, name: str, *command: str | Path) -> Daemon:
        """A program that is to run inside."""
        folder = self._run.subfolder(name)
        environment = {"PATH": self._host.path}
        inside = self.namespaces.command(folder, *command)
        return Daemon(name, self._run, inside, folder, environment, folder / "log")

    def _daemon(self) -> Daemon:
        namespaces = ("--mount", "--pid", "--net", "--mount-proc", "--fork", "--kill-child")
        networks = (BRIDGE, f"{BRIDGE_ADDRESS}/{PODS.prefixlen}", str(SERVICES))
        return Daemon(
            "machine",
            self._run,
            ["unshare", *namespaces, "/bin/sh", _SET_UP, *networks, self._folder / "ready", self._pause],
            self._folder,
            {"PATH": self._host.path},
            self._folder / "log",
        )

    def _first(self) -> Process:
        record = runfolder.read(self._run.path)
        assert record is not None
        [unshare] = [child.process for child in record.children]
        [first] = processes.family([unshare]) - {unshare}
        return first

    def _connect(self) -> None:
        """A cable to the host: it goes with the machine, whose network has one of its ends."""
        name = self._run.path.name.replace("run-", "outbox-")[:_INTERFACE_LENGTH]
        prefix = self._link.network.prefixlen
        pid = str(self.namespaces.first.pid)
        for command in (
            ["link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", pid],
            ["address", "add", f"{self._link.host}/{prefix}", "dev", name],
            ["link", "set", name, "up"],
        ):
            run(["ip", *command], self._host.path)
        self.namespaces.run("ip", "address", "add", f"{self._link.node}/{prefix}", "dev", "eth0")
        self.namespaces.run("ip", "link", "set", "eth0", "up")


def run(command: Sequence[str | Path], path: str, text: IO[bytes] | None = None) -> str:
    """Run a short command of the host, and raise with its words where it fails."""
    done = subprocess.run(
        command,
        env={"PATH": path},
        stdin=text or subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_COMMAND_SECONDS,
        check=False,
    )
    said = done.stdout.decode(errors="replace")
    if done.returncode:
        raise LocalServiceError(f"{' '.join(map(str, command))} failed:\n{said.strip()}")
    return said
