"""A private Postgres from the programs on this machine."""

import ctypes
import os
import re
import signal
import subprocess
from pathlib import Path

from outbox_cli.local import binaries, probe
from outbox_cli.local.daemon import Daemon
from outbox_cli.local.errors import LocalServiceError, PortTakenError
from outbox_cli.local.ports import free_ports
from outbox_cli.local.runfolder import RunFolder

USER = "outbox"
_START_SECONDS = 60.0
_STOP_SECONDS = 30.0

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    # No socket file: its path could exceed the kernel's 107 bytes, and nobody needs it.
    "unix_socket_directories": "",
    "password_encryption": "scram-sha-256",
    "max_connections": "200",
    "shared_buffers": "128MB",
    # A private server survives the death of its processes, not a power failure; commits still wait for
    # the write-ahead log.
    "fsync": "off",
    "full_page_writes": "off",
    # Segments in the data folder are removed with it; those in /dev/shm would outlive a SIGKILL.
    "dynamic_shared_memory_type": "mmap",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "lc_messages": "C",
}


class PostgresServer:
    """A Postgres with a data folder and a password of its own."""

    def __init__(self, program: Path, run: RunFolder) -> None:
        self.title = f"Postgres {binaries.postgres_version(program)}".strip()
        self._program = program
        self._run = run
        self._folder = run.subfolder("postgres")
        self._data = self._folder / "data"
        self._password = run.password(self._folder)
        self._port = 0
        self._daemon = self._make_daemon()

    @property
    def url(self) -> str:
        """Where to connect as the superuser."""
        return f"postgresql://{USER}:{self._password}@127.0.0.1:{self._port}/postgres"

    def boot(self) -> None:
        """Make the data folder where there is none, then start on a free port."""
        if not self._data.exists():
            self._initialise()
        try:
            self._start_on_free_port()
        except PortTakenError:
            self._start_on_free_port()

    def start(self) -> None:
        """Start on the known port and wait until it lets clients in."""
        self._daemon.start()
        self._daemon.wait_until(lambda: probe.postgres_answers(self._port, USER), _START_SECONDS)

    def stop(self) -> None:
        """Postgres's fast shutdown: sessions are ended, the data is written."""
        self._daemon.stop(signal.SIGINT, _STOP_SECONDS)

    def kill(self) -> None:
        """SIGKILL the postmaster and every backend."""
        self._daemon.kill()

    def discard(self) -> None:
        """Postgres's immediate shutdown; the fast one where the data is kept."""
        if self._run.is_kept:
            self.stop()
            return
        self._daemon.discard()
        self._release_shared_memory()

    def _release_shared_memory(self) -> None:
        """Remove the System V segment that Postgres leaves when it was killed and not started again."""
        pid_file = self._data / "postmaster.pid"
        if pid_file.exists() and (
            segment := re.search(r"^ *\d+ +(\d+)$", pid_file.read_text(), re.MULTILINE)
        ):
            remove_it = 0  # IPC_RMID, on Linux and macOS
            ctypes.CDLL(None).shmctl(int(segment[1]), remove_it, None)

    def _start_on_free_port(self) -> None:
        (self._port,) = free_ports(1)
        settings = {**SETTINGS, "port": str(self._port)}
        lines = "".join(f"{name} = '{value}'\n" for name, value in settings.items())
        (self._data / "postgresql.auto.conf").write_text(lines)
        self.start()

    def _initialise(self) -> None:
        password_file = self._run.secret_file(self._folder / "password", self._password)
        account = self._run.account
        command: list[str | Path] = [
            self._program.with_name("initdb"),
            f"--pgdata={self._data}",
            f"--username={USER}",
            f"--pwfile={password_file}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--locale=C.UTF-8",
            "--no-sync",
        ]
        done = subprocess.run(
            command,
            cwd=self._folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
            **(account.popen_arguments() if account else {}),
        )
        password_file.unlink()
        if done.returncode:
            raise LocalServiceError(f"{command[0]} failed:\n{done.stdout}")

    def _make_daemon(self) -> Daemon:
        return Daemon(
            name=self.title,
            run=self._run,
            command=[self._program, "-D", self._data],
            folder=self._folder,
            environment=self._environment(),
            log=self._folder / "postgres.log",
            quit_signal=signal.SIGQUIT,
            secrets=(self._password,),
        )

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self._folder),
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
        }
