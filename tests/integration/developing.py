"""`outbox dev` as a person runs it: a project's files, a terminal, and the keys that one presses there."""

import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from outbox_cli.local import processes
from outbox_cli.local.processes import Process

DEADLINE_SECONDS = 60
_POLL_SECONDS = 0.05
_ROWS, _COLUMNS = 40, 140
_LISTENS = "0A"
"""The state of a socket in /proc/net/tcp."""
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

RELAY = """\
apiVersion: outbox.dev/v1alpha1
kind: OutboxRelay
metadata: {name: stall}
spec:
  database: {secretRef: {name: stall-db}}
  broker: {secretRef: {name: stall-rabbitmq}}
"""

LISTENER = """\
apiVersion: outbox.dev/v1alpha1
kind: OutboxListener
metadata: {name: sell}
spec:
  relayRef: {name: stall}
  bindingKeys: [%s]
  retryDelays: [100ms]
  handler: stall.listeners:sell
  worker: {image: "stall:1"}
"""

CODE = """\
from outbox import listen


@listen("apple.sold")
async def sell(order: dict) -> None:
    print("sold", order["fruit"], "%s", flush=True)
"""


class Project:
    """A project's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "manifests").mkdir()
        (folder / "stall").mkdir()
        (folder / "manifests" / "relay.yaml").write_text(RELAY)
        self.listen_to("apple.sold")
        self.code(CODE % "at one")

    def listen_to(self, keys: str) -> None:
        """Write the listener's manifest."""
        (self.folder / "manifests" / "listener.yaml").write_text(LISTENER % keys)

    def code(self, text: str) -> None:
        """Write the listener's module."""
        (self.folder / "stall" / "listeners.py").write_text(text)


class Running:
    """A command that runs, with all that it has written."""

    def __init__(self, process: subprocess.Popen[bytes], output: int) -> None:
        self.process = process
        self._output = output
        self._written = ""
        self._mark = 0
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    @property
    def text(self) -> str:
        """All of it, without the codes that move a terminal's cursor."""
        return _CONTROL.sub("", self._written).replace("\r", "")

    def until(self, pattern: str) -> str:
        """Wait until something is written that was not there at the last `mark`; all that was since then."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not re.search(pattern, new := self.text[self._mark :]):
            assert self.process.poll() is None, f"it ended before {pattern!r}:\n{self.text}"
            assert time.monotonic() < deadline, f"no {pattern!r} within {DEADLINE_SECONDS} s:\n{self.text}"
            time.sleep(_POLL_SECONDS)
        return new

    def mark(self) -> None:
        """Look only at what comes now."""
        self._mark = len(self.text)

    def family(self) -> set[Process]:
        """All processes of it."""
        found = processes.find(self.process.pid)
        return processes.family([found]) if found else set()

    def workers(self) -> set[int]:
        """The processes that run listeners."""
        return {member.pid for member in self.family() if "outbox_worker" in _command(member.pid)}

    def listening(self) -> list[str]:
        """The addresses that its processes listen on, one for each socket, as the kernel writes them."""
        held = {socket for member in self.family() for socket in _sockets(member.pid)}
        return [address for socket, address in _listening() if socket in held]

    def press(self, keys: bytes) -> None:
        """Press keys in its terminal."""
        os.write(self._output, keys)

    def ended(self) -> int:
        """Wait for the end; its exit code."""
        status = self.process.wait(DEADLINE_SECONDS)
        self._reading.join(DEADLINE_SECONDS)
        return status

    def _read(self) -> None:
        # A terminal whose program has ended answers with an error.
        with contextlib.suppress(OSError):
            while chunk := os.read(self._output, 65536):
                self._written += chunk.decode(errors="replace")


def all_end(members: set[Process]) -> None:
    """Wait until none of these processes is left."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while left := {member for member in members if processes.is_alive(member)}:
        if time.monotonic() > deadline:
            commands = [_command(member.pid) for member in left]
            processes.end(left)
            raise AssertionError(f"still running after {DEADLINE_SECONDS} s: {commands}")
        time.sleep(_POLL_SECONDS)


@contextmanager
def running(*arguments: str, terminal: bool, **environment: str) -> Iterator[Running]:
    """Run the command, in a terminal of its own or with its output in a pipe; gone when the block ends."""
    theirs, ours = _terminal() if terminal else os.pipe()[::-1]
    process = subprocess.Popen(
        [sys.executable, "-m", "outbox_cli", *arguments],
        stdin=theirs if terminal else subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env=_environment(environment),
        # So that the terminal's Ctrl-C reaches it, and nobody else.
        start_new_session=True,
        preexec_fn=(lambda: fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)) if terminal else None,  # noqa: PLW1509
    )
    os.close(theirs)
    started = Running(process, ours)
    try:
        yield started
    finally:
        if process.poll() is None:
            members = started.family()
            process.send_signal(signal.SIGKILL)
            process.wait()
            processes.end(members)
        started.ended()
        os.close(ours)


def _terminal() -> tuple[int, int]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
    return theirs, ours


def _environment(own: Mapping[str, str]) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return {**kept, "TERM": "xterm", **own}


def _sockets(pid: int) -> set[str]:
    """The inodes of the sockets that a process has open."""
    found = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        # One that is closed between the listing and the look.
        with contextlib.suppress(FileNotFoundError):
            found |= set(re.findall(r"socket:\[(\d+)\]", str(file.readlink())))
    return found


def _listening() -> list[tuple[str, str]]:
    """All sockets that listen: their inodes and addresses, without the ports."""
    rows = [
        line.split()
        for table in ("tcp", "tcp6")
        if (path := Path("/proc/net", table)).exists()
        for line in path.read_text().splitlines()[1:]
    ]
    return [(row[9], row[1].partition(":")[0]) for row in rows if row[3] == _LISTENS]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""
