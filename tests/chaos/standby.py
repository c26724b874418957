"""A private Postgres that replicates another one, and can take its place."""

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from outbox_cli.local import processes, runfolder, start
from outbox_cli.local.binaries import observe
from outbox_cli.local.choice import POSTGRES, Installed, choose
from outbox_cli.local.postgres import PostgresServer
from outbox_cli.local.runfolder import RunFolder
from outbox_cli.local.server import Postgres
from tests.chaos.waiting import eventually

_NAME = "standby"
_BACKUP_SECONDS = 120.0


class Standby(PostgresServer):
    """A hot standby, with the users and passwords of its primary."""

    def __init__(self, program: Path, run: RunFolder, primary_url: str) -> None:
        super().__init__(program, run)
        self._primary_url = primary_url

    @property
    def url(self) -> str:
        """Where to connect as the primary's superuser."""
        return with_ports(self._primary_url, self._port)

    def _initialise(self) -> None:
        account = self._run.account
        done = subprocess.run(
            [
                self._program.with_name("pg_basebackup"),
                f"--dbname={self._primary_url}",
                f"--pgdata={self._data}",
                "--checkpoint=fast",
                "--wal-method=stream",
                "--no-sync",
            ],
            cwd=self._folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
            timeout=_BACKUP_SECONDS,
            **(account.popen_arguments() if account else {}),
        )
        assert done.returncode == 0, done.stdout
        with (self._data / "postgresql.conf").open("a") as file:
            file.write(f"primary_conninfo = '{self._primary_url}?application_name={_NAME}'\n")
        (self._data / "standby.signal").touch()


@dataclass(frozen=True)
class Pair:
    """A primary and its synchronous standby."""

    primary: Postgres
    standby: Standby

    def url(self, database: str) -> str:
        """A database at both hosts, the primary first."""
        ports = [urlsplit(server.url).port or 0 for server in (self.primary, self.standby)]
        return urlunsplit(urlsplit(with_ports(self.primary.url, *ports))._replace(path=f"/{database}"))

    async def freeze_primary(self) -> None:
        """SIGSTOP the primary with all its sessions, until it is killed."""
        async with connected(self.primary.url) as connection:
            postmaster = await connection.fetchval("SELECT pg_read_file('postmaster.pid')")
        process = processes.find(int(postmaster.split()[0]))
        assert process is not None
        for member in processes.family([process]):
            os.kill(member.pid, signal.SIGSTOP)

    async def promote(self) -> None:
        """Make the standby the primary, and wait until it is."""
        async with connected(self.standby.url) as connection:
            assert await connection.fetchval("SELECT pg_promote()")


@contextmanager
def replicated() -> Iterator[Pair]:
    """Start a pair, and remove it at the end."""
    source = choose(POSTGRES, observe(POSTGRES, {}))
    assert isinstance(source, Installed), "needs Postgres from the programs on this machine"
    with start(rabbitmq=False, environment={}) as services:
        run = RunFolder.create(runfolder.parent_folder())
        try:
            standby = Standby(source.program, run, services.postgres.url)
            standby.boot()
            asyncio.run(_synchronise(services.postgres))
            yield Pair(services.postgres, standby)
            standby.discard()
        finally:
            run.remove()


async def _synchronise(primary: Postgres) -> None:
    """Have each commit wait until the standby has it."""
    async with connected(primary.url) as connection:
        await connection.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{_NAME}'")
        await connection.execute("SELECT pg_reload_conf()")

        async def is_synchronous() -> bool:
            return bool(
                await connection.fetchval(
                    "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
                )
            )

        await eventually("the standby is synchronous", is_synchronous)


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


def with_ports(url: str, *ports: int) -> str:
    """The URL with this machine at each of the ports."""
    parts = urlsplit(url)
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    return urlunsplit(parts._replace(netloc=f"{parts.username}:{parts.password}@{hosts}"))
