"""`outbox dev`: driven in a terminal, and without one."""

import json
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from outbox import Emitter
from outbox_cli.local import Services, processes
from tests.integration.commanding import outbox
from tests.integration.developing import CODE, LISTENER, Project, Running, all_end, running

CONTROL_C = b"\x03"
READY = r"outboxlistener/sell +True +Ready +1/1"
LOOPBACK = "0100007F"
"""127.0.0.1, as the kernel of a little-endian machine writes it."""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.fixture
def urls(services: Services, postgres_url: str, rabbitmq_url: str) -> dict[str, str]:
    """Of services that run already, as an environment names them."""
    return {
        "OUTBOX_POSTGRES_URL": postgres_url,
        "OUTBOX_RABBITMQ_URL": rabbitmq_url,
        "OUTBOX_RABBITMQ_MANAGEMENT_URL": services.rabbitmq.management_url,
    }


async def emit(url: str, routing_key: str, fruit: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await Emitter().emit(connection, routing_key, {"fruit": fruit})
    finally:
        await connection.close()


def stopped_by(dev: Running, keys: bytes) -> int:
    """Press keys; the exit code, once nothing is left running."""
    members = dev.family()
    assert len(members) > 1
    dev.press(keys)
    status = dev.ended()
    assert not [member for member in members if processes.is_alive(member)]
    return status


async def test_it_shows_what_runs_and_takes_edits_until_ctrl_c(
    project: Project, urls: dict[str, str], postgres_url: str
) -> None:
    with running("dev", "-f", str(project.folder), terminal=True, **urls) as dev:
        dev.until(r"outboxrelay/stall +True +Ready +1/1 +0 +0")
        dev.until(READY)
        assert "export" not in dev.text  # whoever gave the URLs knows them
        await emit(postgres_url, "apple.sold", "a Boskop")
        dev.until(r"sell says: sold a Boskop at one")
        dev.until(r"sell handled: message \S+")

        relays = dev.family() - {each for each in dev.family() if each.pid in dev.workers()}
        project.code(CODE % "at two")
        dev.until(r"outboxlistener/sell +(True|False) +Progressing")
        dev.mark()
        dev.until(READY)
        await emit(postgres_url, "apple.sold", "a Cox")
        dev.until(r"sell says: sold a Cox at two")
        assert relays <= dev.family()

        project.listen_to("apple.sold, pear.sold")
        await emit(postgres_url, "pear.sold", "a Williams")
        dev.until(r"sell says: sold a Williams at two")
        assert stopped_by(dev, CONTROL_C) == 0


async def test_each_resource_is_shown_with_its_conditions_and_counters(
    project: Project, urls: dict[str, str], postgres_url: str
) -> None:
    all_well = r"outboxlistener/sell +CredentialsValid ✓  RelayReady ✓  TopologyReady ✓  WorkloadAvailable ✓"
    with running("dev", "-f", str(project.folder), terminal=True, **urls) as dev:
        dev.until(
            r"outboxrelay/stall +CredentialsValid ✓  DatabaseReady ✓  TopologyReady ✓  WorkloadAvailable ✓"
        )
        dev.until(all_well)
        await emit(postgres_url, "apple.sold", "a Boskop")
        dev.until(READY + r" +0 +0 +1 +0 +0")

        project.code("import nowhere\n")
        dev.until(r"outboxlistener/sell +False +CrashLoop")
        dev.until(
            r"outboxlistener/sell +CredentialsValid ✓ .* TopologyReady ✓  WorkloadAvailable ✗ CrashLoop"
        )
        dev.until(r"outboxlistener/sell: a process ended with exit code 1: .*No module named 'nowhere'")
        dev.mark()
        project.code(CODE % "at two")
        dev.until(all_well)

        (project.folder / "manifests" / "relay.yaml").unlink()
        dev.until(r"sell +RelayReady ✗ RelayMissing  TopologyReady \? RelayMissing  WorkloadAvailable ✓")
        dev.until(r'outboxlistener/sell: OutboxRelay "stall" does not exist in namespace default; create it')
        assert stopped_by(dev, CONTROL_C) == 0


def test_its_processes_listen_on_the_loopback_alone(project: Project, urls: dict[str, str]) -> None:
    with running("dev", "-f", str(project.folder), terminal=False, **urls) as dev:
        dev.until(r"(?m)^outboxrelay/stall Ready=True Ready$")
        dev.until(r"(?m)^outboxlistener/sell Ready=True Ready$")
        assert dev.listening() == [LOOPBACK, LOOPBACK]


async def test_a_wrong_edit_is_reported_and_stops_nothing(
    project: Project, urls: dict[str, str], postgres_url: str
) -> None:
    with running("dev", "-f", str(project.folder), terminal=True, **urls) as dev:
        dev.until(READY)
        before = dev.family()
        project.listen_to("")
        dev.until(r'listener.yaml:\d+: OutboxListener "sell": spec.bindingKeys: bindingKeys must name')
        await emit(postgres_url, "apple.sold", "a Boskop")
        dev.until(r"sold a Boskop at one")
        assert dev.family() == before

        (project.folder / "manifests" / "listener.yaml").unlink()
        dev.until(r"sell says: is gone, and its processes stop; queue default.sell stays")
        dev.mark()
        assert "outboxlistener/sell" not in dev.until(r"outboxrelay/stall +True")
        assert stopped_by(dev, CONTROL_C) == 0


def test_without_a_terminal_each_change_is_a_line(project: Project, urls: dict[str, str]) -> None:
    project.code("import nowhere\n")
    with running("dev", "-f", str(project.folder), terminal=False, **urls) as dev:
        dev.until(r"(?m)^outboxrelay/stall Ready=True Ready$")
        dev.until(r"(?m)^outboxlistener/sell WorkloadAvailable=False CrashLoop$")
        dev.until(r"outboxlistener/sell Ready=False CrashLoop: a process ended with exit code 1: ")
        assert "No module named 'nowhere'" in dev.text
        project.code(CODE % "at last")
        dev.until(r"(?m)^outboxlistener/sell WorkloadAvailable=True Available$")
        dev.until(r"(?m)^outboxlistener/sell Ready=True Ready$")
        members = dev.family()
        dev.process.send_signal(signal.SIGTERM)
        assert dev.ended() == 0
        assert not [member for member in members if processes.is_alive(member)]
        assert "\x1b" not in dev.text


async def test_for_programs_each_change_is_an_object(
    project: Project, urls: dict[str, str], postgres_url: str
) -> None:
    project.code(CODE.replace("print(", "raise ValueError(").replace(", flush=True", ""))
    with running("dev", "-f", str(project.folder), "-o", "json", terminal=False, **urls) as dev:
        dev.until(r'"outboxlistener/sell", "ready": "True"')
        await emit(postgres_url, "apple.sold", "a Boskop")
        dev.until(r'"dead letter"')
        dev.process.send_signal(signal.SIGINT)
        assert dev.ended() == 0
        lines = [line for line in dev.text.splitlines() if line.startswith("{")]
        news: list[dict[str, Any]] = list(map(json.loads, lines))
    kinds = [each["kind"] for each in news if each.get("kind") in ("retry", "dead letter")]
    assert kinds == ["retry", "dead letter"]


async def test_a_second_ctrl_c_does_not_wait_for_a_listener(
    project: Project, urls: dict[str, str], postgres_url: str
) -> None:
    project.code("import asyncio\n" + CODE % "at length" + "    await asyncio.sleep(3600)\n")
    with running("dev", "-f", str(project.folder), terminal=True, **urls) as dev:
        dev.until(READY)
        await emit(postgres_url, "apple.sold", "a Boskop")
        dev.until(r"sold a Boskop at length")
        members = dev.family()
        dev.press(CONTROL_C)
        dev.until(r"stopping: processes finish what they began")
        dev.press(CONTROL_C)
        assert dev.ended() == 0
        assert not [member for member in members if processes.is_alive(member)]


def test_processes_finish_when_it_is_killed(project: Project, urls: dict[str, str]) -> None:
    with running("dev", "-f", str(project.folder), terminal=False, **urls) as dev:
        dev.until(r"(?m)^outboxlistener/sell Ready=True Ready$")
        members = dev.family()
        dev.process.kill()
        dev.ended()
    all_end(members)


async def test_private_services_are_kept_where_that_is_asked_for(project: Project, tmp_path: Path) -> None:
    (project.folder / "manifests" / "listener.yaml").write_text(
        re.sub(r"  (handler|worker).*\n", "", LISTENER) % "'#'"
    )
    arguments = ("dev", "-f", str(project.folder), "--keep")
    folder = None
    try:
        with running(*arguments, terminal=False) as dev:
            dev.until(r"(?m)^outboxlistener/sell Ready=True Ready$")
            [url] = re.findall(
                r"(?m)^export OUTBOX_DATABASE_URL=(postgresql://\S+@127\.0\.0\.1:\S+)$", dev.text
            )
            assert re.search(r"(?m)^export OUTBOX_BROKER_URL=amqp://\S+@127\.0\.0\.1:\S+$", dev.text)
            connection = await asyncpg.connect(url)
            await connection.execute("CREATE TABLE kept AS SELECT 42 AS number")
            await connection.close()
            members = dev.family()
            dev.process.send_signal(signal.SIGTERM)
            assert dev.ended() == 0
            assert not [member for member in members if processes.is_alive(member)]
            [folder] = re.findall(r"(?m)^the data is kept in (\S+): ", dev.text)
        with running(*arguments, terminal=True) as dev:
            dev.until(r"outboxlistener/sell +True +Ready")
            [url] = re.findall(r"export OUTBOX_DATABASE_URL=(postgresql://\S+)", dev.text)
            connection = await asyncpg.connect(url)
            assert await connection.fetchval("SELECT number FROM kept") == 42
            await connection.close()
            assert stopped_by(dev, CONTROL_C) == 0
    finally:
        if folder:
            shutil.rmtree(folder)


def test_a_mistake_at_the_start_is_one_line_and_nothing_starts(project: Project) -> None:
    project.listen_to("'a~b'")
    told = outbox("dev", "-f", str(project.folder))
    assert (told.status, told.output) == (1, "")
    assert 'OutboxListener "sell": spec.bindingKeys[0]: must not contain ~' in told.errors
    assert len(told.errors.splitlines()) == 1


def test_a_folder_without_our_resources_is_named(tmp_path: Path) -> None:
    told = outbox("dev", "-f", str(tmp_path))
    assert (told.status, told.output) == (1, "")
    line = f"outbox: there is no OutboxRelay and no OutboxListener in {tmp_path}; name others with -f\n"
    assert told.errors == line


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (
            {"OUTBOX_POSTGRES_URL": "postgresql://shop:geheim@127.0.0.1:9/x"},
            "Postgres 127.0.0.1:9/x (user shop): [Errno 111] Connection refused; check the host, the port",
        ),
        (
            {"OUTBOX_RABBITMQ_URL": "amqp://shop:geheim@127.0.0.1:9/"},
            'broker 127.0.0.1:9, vhost "/", user "shop": Connection refused; is it running, and can it be',
        ),
        (
            {"OUTBOX_RABBITMQ_MANAGEMENT_URL": "http://127.0.0.1:9"},
            "http://127.0.0.1:9 cannot be reached: Connect call failed ('127.0.0.1', 9); see that it runs "
            "with its management plugin enabled, or set --management-url",
        ),
    ],
    ids=["database", "broker", "management"],
)
def test_a_wrong_url_is_one_line_with_the_cure(
    project: Project, urls: dict[str, str], wrong: dict[str, str], told: str
) -> None:
    found = outbox("dev", "-f", str(project.folder), **{**urls, **wrong})
    assert (found.status, found.output) == (1, "")
    # Before it there may be a line about a run that somebody else has killed, and that was cleaned up.
    [line] = [line for line in found.errors.splitlines() if not line.startswith("cleaning up")]
    assert line.startswith(f"outbox: {told}")
    assert "geheim" not in found.errors
