"""One process in the place of a pod: watched, started again when it ends, and asked to finish."""

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from outbox_cli.dev.containers import Program
from outbox_cli.local.ports import free_ports
from outbox_core.backoff import Backoff

_BACKOFF = Backoff(1.0, 30.0, jitter=0.0)
_PROBE_SECONDS = 2.0
_MARGIN_SECONDS = 5.0
_DRAIN_SECONDS = 1.0
_OK = 200
_LOOPBACK = "127.0.0.1"
_CHUNK = 65_536
_LONGEST_LINE = 1_000_000

_SET_PARENT_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of Linux."""
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


@dataclass(frozen=True, slots=True)
class Crash:
    """How a process ended that should not have."""

    status: int
    """Its exit code; a signal's number below 0."""
    words: str
    """The last line that it wrote."""
    pause_seconds: float
    """How long it is before it is started again."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all processes have in common."""

    environment: Mapping[str, str] = field(repr=False)
    """What they are told, beside what each is told for itself."""
    folder: Path
    """Where they run."""


class Child:
    """A program that runs until it is told to stop."""

    def __init__(self, program: Program, surroundings: Surroundings, tell: Callable[[str], None]) -> None:
        """`tell` gets each line that it writes."""
        self.program = program
        self.is_ready = False
        """Whether it can do its work, as it says itself."""
        self.unready_reason = "starting"
        """Why not."""
        self.crash: Crash | None = None
        """How it last ended; None once it has been ready again."""
        self._surroundings = surroundings
        self._tell = tell
        self._stopping = asyncio.Event()
        self._again = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None
        self._port = 0
        self._last_line = ""

    async def run(self) -> None:
        """Run it, again and again, until it is told to stop and has ended."""
        failures = 0
        while not self._stopping.is_set():
            self._again.clear()
            status = await self._live()
            if self._stopping.is_set() or self._again.is_set():
                failures = 0
                continue
            failures = 1 if self.crash is None else failures + 1
            pause = _BACKOFF.delay(failures)
            self.crash = Crash(status, self._last_line, pause)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._again.wait()

    def stop(self) -> None:
        """Ask it to finish, for good."""
        self._stopping.set()
        self.restart()

    def restart(self) -> None:
        """Ask it to finish; it is started again at once."""
        self._again.set()
        self.is_ready, self.unready_reason = False, "stopping"

    def kill(self) -> None:
        """End it now, with whatever it has started."""
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def look(self, session: aiohttp.ClientSession) -> None:
        """Ask it whether it is ready."""
        if self._process is None or self._again.is_set():
            return
        try:
            async with asyncio.timeout(_PROBE_SECONDS):
                response = await session.get(f"http://{_LOOPBACK}:{self._port}/readyz")
                said = (await response.text()).strip()
        except (aiohttp.ClientError, OSError):
            self.is_ready, self.unready_reason = False, "starting"
            return
        self.is_ready, self.unready_reason = response.status == _OK, said
        if self.is_ready:
            self.crash = None

    async def _live(self) -> int:
        """One life, from its start to its end."""
        self._last_line, (self._port,) = "", free_ports(1)
        self._process = process = await asyncio.create_subprocess_exec(
            sys.executable,
            *self.program.arguments,
            env={
                **self._surroundings.environment,
                **self.program.environment,
                "OUTBOX_PROBE_PORT": str(self._port),
                # A pod is asked by its kubelet from outside; here nobody but us asks.
                "OUTBOX_PROBE_HOST": _LOOPBACK,
                # What it says is read by a program here.
                "OUTBOX_LOG_FORMAT": "json",
            },
            cwd=self._surroundings.folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            # A Ctrl-C in the terminal is for us, who end everything in order.
            start_new_session=True,
            preexec_fn=_end_with_us,
        )
        assert process.stdout is not None  # noqa: S101 - asked for
        reading = asyncio.create_task(self._read(process.stdout))
        try:
            await self._end_of(process)
        finally:
            self.kill()
            status = await process.wait()
            self._process, self.is_ready = None, False
            # Something that it started may live on and keep the pipe open.
            await asyncio.wait([reading], timeout=_DRAIN_SECONDS)
            reading.cancel()
        return status

    async def _end_of(self, process: asyncio.subprocess.Process) -> None:
        """Wait until it has ended, or has had its time to finish after it was asked to."""
        ended = asyncio.create_task(process.wait())
        asked = asyncio.create_task(self._again.wait())
        try:
            await asyncio.wait([ended, asked], return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                # It may have ended a moment ago.
                with contextlib.suppress(ProcessLookupError):
                    process.terminate()
                await asyncio.wait([ended], timeout=self.program.shutdown_seconds + _MARGIN_SECONDS)
        finally:
            ended.cancel()
            asked.cancel()

    async def _read(self, stream: asyncio.StreamReader) -> None:
        rest = b""
        while chunk := await stream.read(_CHUNK):
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > _LONGEST_LINE:
                lines, rest = [*lines, rest], b""
            for line in lines:
                self._heard(line)
        self._heard(rest)

    def _heard(self, line: bytes) -> None:
        text = line.decode(errors="replace").strip()
        if text:
            self._last_line = text
            self._tell(text)


def _end_with_us() -> None:
    """In the new process: have the kernel ask it to finish when we are killed and cannot."""
    if _libc is not None:
        _libc.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)
