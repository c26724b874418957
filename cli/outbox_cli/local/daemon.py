"""One long-running program: in a session of its own, watched until it answers, ended with its family."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from outbox_cli.local import processes
from outbox_cli.local.errors import LocalServiceError, PortTakenError
from outbox_cli.local.processes import Process
from outbox_cli.local.runfolder import RunFolder

_POLL_SECONDS = 0.05
_DISCARD_SECONDS = 10.0
_LOG_LINES = 20
_PORT_TAKEN = ("address already in use", "eaddrinuse")


@dataclass
class Daemon:
    """A program that runs until it is told to end."""

    name: str
    """For errors."""
    run: RunFolder
    command: Sequence[str | Path]
    folder: Path
    """Its working folder, inside the run folder: that is how a later run recognises it."""
    environment: Mapping[str, str]
    """All of its environment: what the caller's shell exports must not change a private server."""
    log: Path
    quit_signal: signal.Signals = signal.SIGKILL
    """Ends it at once, without leaving anything behind in the kernel."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """What must not appear in an error."""
    _child: subprocess.Popen[bytes] | None = None
    _process: Process | None = None

    def start(self) -> None:
        """Start it, and write its pid into the run folder."""
        account = self.run.account
        with self.log.open("wb") as log:
            self._child = subprocess.Popen(
                self.command,
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # A Ctrl-C in the terminal is for the caller, who may still need the service to finish.
                start_new_session=True,
                umask=0o077,
                **(account.popen_arguments() if account else {}),
            )
        self._process = processes.find(self._child.pid)
        if self._process:
            self.run.add_child(self._process, self.quit_signal)

    def wait_until(self, ready: Callable[[], bool], timeout_seconds: float) -> None:
        """Wait until it answers; raise with the end of its log where it dies or takes too long."""
        deadline = time.monotonic() + timeout_seconds
        while True:
            is_ready = ready()
            # Looked at after the answer: on a port that was taken meanwhile somebody else may have given it.
            if self._child is None or self._child.poll() is not None:
                raise self._failure("ended while starting")
            if is_ready:
                return
            if time.monotonic() > deadline:
                raise self._failure(f"does not answer after {timeout_seconds:.0f} s")
            time.sleep(_POLL_SECONDS)

    def stop(self, sign: signal.Signals, timeout_seconds: float) -> None:
        """Send a signal and wait until it and its descendants are gone; kill what stays."""
        if self._child is None or self._process is None:
            return
        members = processes.family([self._process])
        if self._child.poll() is None:
            os.kill(self._child.pid, sign)
            self._reap(timeout_seconds)
        processes.end(members, grace_seconds=timeout_seconds)
        self._child.wait()
        self._child = None

    def discard(self) -> None:
        """End it at once and leave nothing behind; its data is not wanted any more."""
        self.stop(self.quit_signal, _DISCARD_SECONDS)

    def kill(self) -> None:
        """SIGKILL for it and all its descendants."""
        if self._process is None or self._child is None:
            return
        processes.end(processes.family([self._process]))
        self._child.wait()
        self._child = None

    def _reap(self, timeout_seconds: float) -> None:
        assert self._child is not None  # noqa: S101 - only called while there is one
        try:
            self._child.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            self._child.kill()

    def _failure(self, what: str) -> LocalServiceError:
        text = self.log.read_text(errors="replace")
        for secret in self.secrets:
            text = text.replace(secret, "***")
        last_lines = "\n".join(text.splitlines()[-_LOG_LINES:])
        kind = PortTakenError if any(words in text.lower() for words in _PORT_TAKEN) else LocalServiceError
        return kind(f"{self.name} {what}; the end of its log:\n{last_lines}")
