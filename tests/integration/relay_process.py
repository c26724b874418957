"""`python -m outbox_relay` as a container runs it: settings from the environment, probes by HTTP."""

import asyncio
import os
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from outbox_cli.local.ports import free_ports
from tests.integration.relaying import DEADLINE_SECONDS, until


@dataclass
class Result:
    """How a process ended, and what it said."""

    status: int
    output: str
    errors: str

    @property
    def complaints(self) -> list[str]:
        """The lines of its log that are errors."""
        return [line for line in self.errors.splitlines() if " ERROR " in line]


@dataclass
class RelayProcess:
    """A process that was started."""

    process: asyncio.subprocess.Process
    port: int

    async def ended(self) -> Result:
        async with asyncio.timeout(DEADLINE_SECONDS):
            output, errors = await self.process.communicate()
        assert self.process.returncode is not None
        return Result(self.process.returncode, output.decode(), errors.decode())

    async def answers(self, path: str, wanted: str) -> None:
        """Wait until a probe's answer contains a text."""
        last = ""

        async def holds() -> bool:
            nonlocal last
            last = await asyncio.to_thread(self._get, path)
            return wanted in last

        await until(holds, lambda: f"{path} to answer {wanted!r}, not {last!r}")

    def _get(self, path: str) -> str:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"http://127.0.0.1:{self.port}{path}", timeout=10) as response:
                return f"{response.status} {response.read().decode()}"
        except urllib.error.HTTPError as error:
            with error:
                return f"{error.code} {error.read().decode()}"
        except OSError as error:
            return str(error)


def relay_process(*arguments: str, **variables: str) -> AbstractAsyncContextManager[RelayProcess]:
    """Start a relay; it is killed where it has not ended with the block."""
    return module_process("outbox_relay", *arguments, variables=variables)


@asynccontextmanager
async def module_process(
    module: str, *arguments: str, variables: Mapping[str, str], folder: Path | None = None
) -> AsyncIterator[RelayProcess]:
    """Start `python -m module`, in a folder."""
    [port] = free_ports(1)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("OUTBOX_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        *arguments,
        cwd=folder,
        env={**inherited, "OUTBOX_PROBE_PORT": str(port), **variables},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield RelayProcess(process, port)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def result_of(*arguments: str, **variables: str) -> Result:
    """Start one and wait for its end."""
    async with relay_process(*arguments, **variables) as started:
        return await started.ended()
