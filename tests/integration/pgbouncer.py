"""A private PgBouncer in front of a test's database."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import unquote, urlsplit

import psycopg
import pytest

from outbox_cli.local import account, apt
from outbox_cli.local.ports import free_ports

_DEADLINE_SECONDS = 60
_FOLDERS = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin"

CONFIGURATION = """
[databases]
{database} = host={host} port={port} dbname={database} user={user} password='{password}'

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen_port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
server_round_robin = {in_turn:d}
"""


class PgBouncer:
    """A pooler that lets everybody in, on loopback only, under an unprivileged account."""

    def __init__(self, postgres_url: str) -> None:
        self._program = _program()
        self._postgres = urlsplit(postgres_url)
        # PgBouncer refuses to run as root.
        self._account = account.for_servers()
        self._folder = Path(tempfile.mkdtemp(prefix="outbox-pgbouncer-"))
        self._log = self._folder / "pgbouncer.log"
        (self._port,) = free_ports(1)
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"postgresql://any:any@127.0.0.1:{self._port}{self._postgres.path}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        shutil.rmtree(self._folder)

    def start(self, mode: Literal["transaction", "session"], *, in_turn: bool = False) -> None:
        """Start it in this mode, and wait until it listens.

        It gives a client the session that was used last, or all of them `in_turn`.
        """
        command: list[str | Path] = [self._program, self._configuration(mode, in_turn)]
        identity: dict[str, Any] = self._account.popen_arguments() if self._account else {}
        with self._log.open("wb") as log:
            self._child = subprocess.Popen(
                command,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **identity,
            )
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while not self._listens():
            assert self._child.poll() is None, f"PgBouncer ended:\n{self._log.read_text()}"
            assert time.monotonic() < deadline, f"PgBouncer does not listen:\n{self._log.read_text()}"
            time.sleep(0.02)

    def open_sessions(self, count: int) -> None:
        """Have it hold so many sessions at the server, which its next clients are given."""
        with contextlib.ExitStack() as stack:
            for _ in range(count):
                connection = stack.enter_context(psycopg.connect(self.url, prepare_threshold=None))
                connection.execute("SELECT")

    def stop(self) -> None:
        """End it at once, and with it the sessions of its clients."""
        if self._child is not None:
            # What its gentler signals mean depends on its version.
            self._child.kill()
            self._child.wait()
            self._child = None

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop its process for the block: connections stay open, and nothing answers."""
        assert self._child is not None
        self._child.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._child.send_signal(signal.SIGCONT)

    def _configuration(self, mode: str, in_turn: bool) -> Path:
        path = self._folder / "pgbouncer.ini"
        path.touch(mode=0o600)
        path.write_text(
            CONFIGURATION.format(
                database=self._postgres.path[1:],
                host=self._postgres.hostname,
                port=self._postgres.port,
                user=self._postgres.username,
                password=unquote(self._postgres.password or "").replace("'", "''"),
                listen_port=self._port,
                mode=mode,
                in_turn=in_turn,
            )
        )
        if self._account:
            self._account.owns(path)
            self._account.owns(self._folder)
        return path

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
        except OSError:
            return False
        return True


def _program() -> str:
    """The program, installed where that is allowed; the test is skipped where it is not."""
    if found := shutil.which("pgbouncer", path=_FOLDERS):
        return found
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        pytest.skip("there is no pgbouncer on PATH; install the package pgbouncer to run this test")
    apt.install(["pgbouncer"])
    found = shutil.which("pgbouncer", path=_FOLDERS)
    assert found, "apt-get installed pgbouncer, and it is not on PATH"
    return found
