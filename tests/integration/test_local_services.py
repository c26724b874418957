"""The private Postgres and RabbitMQ themselves: they answer, keep their data, and leave nothing behind."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aio_pika
import psycopg
import pytest

from outbox_cli.local import LocalServiceError, Services, postgres, probe, processes, runfolder, start
from outbox_cli.local.ports import free_ports
from outbox_cli.local.processes import Process
from outbox_cli.local.runfolder import Record, read

SEGMENTS = Path("/proc/sysvipc/shm")

OWNER = """
import sys
from outbox_cli.local import start
with start(environment={}):
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def private() -> Iterator[Services]:
    """A pair that these tests may stop and kill."""
    with start(environment={}) as services:
        yield services


def runs_of(pid: int) -> dict[Path, Record]:
    """The run folders that a process owns."""
    found = {path: read(path) for path in runfolder.parent_folder().iterdir()}
    return {path: record for path, record in found.items() if record and record.owner.pid == pid}


def family_of(record: Record) -> set[Process]:
    return processes.family(child.process for child in record.children)


def eventually(what: str, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, f"still waiting after 60 s until {what}"


def password_of(url: str) -> str:
    password = urlsplit(url).password
    assert password
    return password


def test_postgres_answers_as_a_superuser(private: Services) -> None:
    with psycopg.connect(private.postgres.url) as connection:
        row = connection.execute(
            "SELECT rolsuper, current_setting('TimeZone'), current_setting('server_encoding'),"
            " current_setting('lc_messages') FROM pg_roles WHERE rolname = current_user"
        ).fetchone()
    assert row == (True, "UTC", "UTF8", "C")


def test_postgres_refuses_a_wrong_password(private: Services) -> None:
    url = private.postgres.url.replace(password_of(private.postgres.url), "wrong")
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(url)


async def test_rabbitmq_answers_as_an_administrator(private: Services) -> None:
    async with await aio_pika.connect(private.rabbitmq.url) as connection:
        channel = await connection.channel()
        await channel.declare_exchange("made-by-the-administrator")
    parts = urlsplit(private.rabbitmq.management_url)
    assert parts.port
    assert probe.management_answers(parts.port, parts.username or "", parts.password or "")
    assert not probe.management_answers(parts.port, parts.username or "", "wrong")


def test_a_row_survives_a_stop_and_a_crash_of_postgres(private: Services) -> None:
    with psycopg.connect(private.postgres.url) as connection:
        connection.execute("CREATE TABLE kept (value text)")
        connection.execute("INSERT INTO kept VALUES ('written')")
    for take_away in (private.postgres.stop, private.postgres.kill):
        take_away()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(private.postgres.url)
        private.postgres.start()
        with psycopg.connect(private.postgres.url) as connection:
            assert connection.execute("SELECT value FROM kept").fetchall() == [("written",)]


@pytest.mark.parametrize("verb", ["stop", "kill"])
async def test_a_message_survives_an_outage_of_rabbitmq(private: Services, verb: str) -> None:
    arguments: dict[str, Any] = {"x-queue-type": "quorum"}
    async with await aio_pika.connect(private.rabbitmq.url) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue(f"kept-{verb}", durable=True, arguments=arguments)
        message = aio_pika.Message(b"written", delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await channel.default_exchange.publish(message, routing_key=queue.name)
    eventually("the queue is on the disk", lambda: on_disk(queue.name))
    getattr(private.rabbitmq, verb)()
    with pytest.raises(ConnectionError):
        await aio_pika.connect(private.rabbitmq.url)
    private.rabbitmq.start()
    async with await aio_pika.connect(private.rabbitmq.url) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue(f"kept-{verb}", durable=True, arguments=arguments)
        kept = await queue.get(timeout=30)
        assert kept.body == b"written"
        await kept.ack()


def on_disk(queue: str) -> bool:
    """RabbitMQ 3.10 writes the name of a new quorum queue half a second late; a crash before loses it."""
    names = [
        found for run in runs_of(os.getpid()) for found in run.glob("rabbitmq/data/*/quorum/*/names.dets")
    ]
    return any(queue.encode() in file.read_bytes() for file in names)


def test_no_password_is_in_a_process_list_or_an_environment(private: Services) -> None:
    secrets = [password_of(url).encode() for url in (private.postgres.url, private.rabbitmq.url)]
    for member in set().union(*map(family_of, runs_of(os.getpid()).values())):
        for name in ("cmdline", "environ"):
            shown = Path(f"/proc/{member.pid}/{name}").read_bytes()
            assert not any(secret in shown for secret in secrets)


def test_everything_listens_on_this_machine_only(private: Services) -> None:
    members = set().union(*map(family_of, runs_of(os.getpid()).values()))
    addresses = {address for member in members for address in listening(member.pid)}
    assert any(address.startswith("127.0.0.1:") for address in addresses)
    assert all(address.startswith(("127.0.0.1:", "::1:")) for address in addresses), addresses


def listening(pid: int) -> set[str]:
    """The addresses that a process listens on, as the kernel knows them; see proc_pid_net(5)."""
    inodes = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            inodes |= set(re.findall(r"socket:\[(\d+)\]", str(descriptor.readlink())))
    found = set()
    for family, table in ((socket.AF_INET, "tcp"), (socket.AF_INET6, "tcp6")):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                found.add(address_of(family, fields[1]))
    return found


def address_of(family: socket.AddressFamily, text: str) -> str:
    number, port = text.split(":")
    words = [bytes.fromhex(number[at : at + 8])[::-1] for at in range(0, len(number), 8)]
    return f"{socket.inet_ntop(family, b''.join(words))}:{int(port, 16)}"


def test_nothing_is_left_at_the_end() -> None:
    before = runs_of(os.getpid())
    with start(environment={}) as services:
        ((path, record),) = (runs_of(os.getpid()).items() - before.items()) or [(None, None)]
        assert path is not None
        assert record is not None
        members = family_of(record)
        assert {"postgres", "beam.smp", "epmd"} <= {name_of(member) for member in members}
        services.rabbitmq.kill()
    assert not [member for member in members if processes.is_alive(member)]
    assert not path.exists()


def name_of(process: Process) -> str:
    return Path(f"/proc/{process.pid}/comm").read_text().strip()


def test_what_a_killed_run_leaves_is_removed_by_the_next() -> None:
    command = [sys.executable, "-c", OWNER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"ready\n"
        ((path, record),) = runs_of(owner.pid).items()
        members = family_of(record)
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    assert any(processes.is_alive(member) for member in members)
    lines: list[str] = []
    with start(postgres=False, rabbitmq=False, progress=lines.append):
        # Another worker's start may have been first, and still be at it.
        eventually("the survivors are gone", lambda: not any(map(processes.is_alive, members)))
        eventually("the folder is gone", lambda: not path.exists())


def test_services_of_the_environment_are_used_and_left_running(services: Services) -> None:
    environment = {
        "OUTBOX_POSTGRES_URL": services.postgres.url,
        "OUTBOX_RABBITMQ_URL": services.rabbitmq.url,
        "OUTBOX_RABBITMQ_MANAGEMENT_URL": services.rabbitmq.management_url,
    }
    lines: list[str] = []
    with start(environment=environment, progress=lines.append) as given:
        assert given.postgres.url == services.postgres.url
        assert given.rabbitmq.url == services.rabbitmq.url
        assert given.rabbitmq.management_url == services.rabbitmq.management_url
        with pytest.raises(LocalServiceError, match="somebody else runs it"):
            given.postgres.stop()
    assert not [line for line in lines if line.startswith("starting")]
    psycopg.connect(services.postgres.url).close()


@pytest.mark.skipif(not SEGMENTS.exists(), reason="the kernel's list of shared memory is Linux's")
@pytest.mark.parametrize("crashed", [False, True])
def test_postgres_leaves_no_shared_memory(crashed: bool) -> None:
    with start(rabbitmq=False, environment={}) as services:
        port = urlsplit(services.postgres.url).port
        (segment,) = [line for run in runs_of(os.getpid()) for line in segment_of(run, port)]
        assert segment in segments()
        if crashed:
            services.postgres.kill()
    assert segment not in segments()


def segment_of(run: Path, port: int | None) -> list[str]:
    """The id in the seventh line of postmaster.pid, where the fourth is this port."""
    found = [file.read_text().splitlines() for file in run.glob("postgres/data/postmaster.pid")]
    return [lines[6].split()[1] for lines in found if lines[3] == str(port)]


def segments() -> set[str]:
    return {line.split()[1] for line in SEGMENTS.read_text().splitlines()[1:]}


def test_a_server_that_cannot_start_shows_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(postgres.SETTINGS, "shared_buffers", "nonsense")
    before = runs_of(os.getpid())
    with (
        pytest.raises(
            LocalServiceError, match=r'ended while starting; (.*\n)*.*"shared_buffers": "nonsense"'
        ),
        start(rabbitmq=False, environment={}),
    ):
        pass
    assert runs_of(os.getpid()) == before


def test_a_port_taken_meanwhile_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as rival:
        taken = rival.getsockname()[1]
        offers = iter([[taken], free_ports(1)])
        monkeypatch.setattr(postgres, "free_ports", lambda _: next(offers))
        with start(rabbitmq=False, environment={}) as services:
            assert urlsplit(services.postgres.url).port != taken
            psycopg.connect(services.postgres.url).close()


def test_the_progress_says_what_starts_and_how_long_it_took() -> None:
    lines: list[str] = []
    with start(rabbitmq=False, environment={}, progress=lines.append):
        pass
    starting, ready = [line for line in lines if "Postgres" in line]
    assert re.fullmatch(r"starting Postgres \d+ …", starting)
    assert re.fullmatch(r"Postgres \d+ ready in \d+\.\d s", ready)


def test_each_test_has_a_database_and_a_vhost_of_its_own(postgres_url: str, rabbitmq_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        tables = connection.execute(
            "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'public'"
        )
        assert tables.fetchone() == (0,)
    assert re.fullmatch(r"/test_\w+", urlsplit(rabbitmq_url).path)


async def test_the_vhost_of_a_test_lets_it_in(rabbitmq_url: str) -> None:
    async with await aio_pika.connect(rabbitmq_url) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue("own", durable=True, arguments={"x-queue-type": "quorum"})
        await channel.default_exchange.publish(aio_pika.Message(b"x"), routing_key="own")
        assert (await queue.get(timeout=30)).body == b"x"


def test_a_management_request_needs_no_proxy(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert urllib.request.getproxies()["http"]
    parts = urlsplit(services.rabbitmq.management_url)
    assert parts.port
    assert probe.management_answers(parts.port, parts.username or "", parts.password or "")


def test_a_record_holds_no_secret(private: Services) -> None:
    for path in runs_of(os.getpid()):
        text = (path / "run.json").read_text()
        assert json.loads(text)["owner"]["pid"] == os.getpid()
        assert password_of(private.postgres.url) not in text
