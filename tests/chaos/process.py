"""A part of ours as a process, in the hands of a test."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Protocol

from outbox_cli.local.ports import free_ports
from tests.chaos.waiting import eventually

_HTTP_SECONDS = 30.0


class Child(Protocol):
    """What is needed of a child: a `subprocess.Popen` has it."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def send_signal(self, sig: int, /) -> None: ...

    def kill(self) -> None: ...

    def wait(self) -> int: ...


class Process:
    """`python -m` one of our parts, in a process of its own, killed or asked to leave."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        """`command` is what stands behind `python -m`."""
        (self.port,) = free_ports(1)
        self._log = log
        self._child = self._born(command, {**environment, "OUTBOX_PROBE_PORT": str(self.port)})

    def _born(self, command: Sequence[str], environment: Mapping[str, str]) -> Child:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("OUTBOX_")}
        with self._log.open("wb") as output:
            return subprocess.Popen(
                [sys.executable, "-m", *command],
                env={**inherited, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def is_running(self) -> bool:
        return self._child.poll() is None

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def send(self, sign: signal.Signals) -> None:
        """Send a signal; the process is a child that was not waited for, so the pid is still its own."""
        self._child.send_signal(sign)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._child.kill()
        self._child.wait()

    def client_ports(self) -> list[int]:
        """The local ports of its connections: what `pg_stat_activity` knows it by."""
        inodes = _sockets(self._child.pid)
        lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return [int(line[1].partition(":")[2], 16) for line in lines if line[9] in inodes]

    async def ended(self) -> int:
        """Wait until it ends by itself; its exit status."""

        async def is_over() -> bool:
            return not self.is_running

        await eventually("the process has ended", is_over)
        return self._child.wait()

    async def terminate(self) -> int:
        """SIGTERM, and wait; its exit status."""
        self.send(signal.SIGTERM)
        return await self.ended()

    async def unready_reason(self) -> str | None:
        """What /readyz says, None where it is ready."""
        return await asyncio.to_thread(self._readyz)

    async def ready(self) -> float:
        """Wait until /readyz says so; how many seconds that took."""

        async def is_ready() -> bool:
            assert self.is_running, f"it has ended by itself:\n{self.log}"
            return await self.unready_reason() is None

        return await eventually("the process is ready", is_ready)

    async def unready(self, words: str) -> str:
        """Wait until /readyz says that it is not, in these words; all that it says."""
        said: list[str] = []

        async def is_unready() -> bool:
            said.append(await self.unready_reason() or "")
            return words in said[-1]

        await eventually(f"/readyz says {words!r}", is_unready)
        return said[-1]

    def _readyz(self) -> str | None:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=_HTTP_SECONDS)
        try:
            connection.request("GET", "/readyz")
            answer = connection.getresponse()
            text = answer.read().decode()
        except (OSError, HTTPException):
            return "no answer"
        finally:
            connection.close()
        return None if answer.status == 200 else text


def _sockets(pid: int) -> set[str]:
    """The inodes of a process's sockets; see proc_pid_fd(5)."""
    found = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found.add(str(descriptor.readlink()))
    return {name.removeprefix("socket:[").rstrip("]") for name in found if name.startswith("socket:")}
