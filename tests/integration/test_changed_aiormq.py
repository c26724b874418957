"""With a changed aiormq, real processes move messages by the plain path, and log one warning."""

import re
import shutil
import signal
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import aiormq
import pytest

from outbox.topology import dead_letter_queue
from tests.integration.relay_process import RelayProcess, module_process
from tests.integration.relaying import Traffic, traffic_between, until

VERSION = "7.3.0"
WARNING = "aiormq lacks what batches rely on"
LISTENERS = """
import pathlib
from outbox import Reject, listen

@listen("works", queue="{exchange}.works")
async def on_works(body):
    pathlib.Path(f"works-{{body}}").touch()

@listen("fails", queue="{exchange}.fails", retry_delays=(0.1,))
async def on_fails(body, attempt_count):
    pathlib.Path(f"fails-{{body}}-{{attempt_count}}").touch()
    if attempt_count == 1:
        raise ValueError("the first time")

@listen("refused", queue="{exchange}.refused")
async def on_refused(body):
    if not pathlib.Path("accept").exists():
        raise Reject("not yet")
    pathlib.Path(f"refused-{{body}}").touch()
"""


@pytest.fixture
async def traffic(postgres_url: str, rabbitmq_url: str) -> AsyncIterator[Traffic]:
    async with traffic_between(postgres_url, rabbitmq_url) as traffic:
        yield traffic


def changed_aiormq(folder: Path, *renamed: str) -> str:
    """A `PYTHONPATH` with a working copy of aiormq in which these names are others, everywhere."""
    [source] = aiormq.__path__
    copy = folder / "changed"
    shutil.copytree(source, copy / "aiormq", ignore=shutil.ignore_patterns("__pycache__"))
    for file in (copy / "aiormq").glob("*.py"):
        text = file.read_text()
        for name in renamed:
            text = re.sub(rf"(?<![A-Za-z0-9]){name}\b", f"{name}_renamed", text)
        file.write_text(text)
    metadata = copy / f"aiormq-{VERSION}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: aiormq\nVersion: {VERSION}\n")
    return str(copy)


async def has_messages(traffic: Traffic, queue: str, count: int) -> bool:
    declared = await traffic.channel.declare_queue(queue, passive=True)
    return declared.declaration_result.message_count == count


async def stopped(process: RelayProcess, *names: str) -> None:
    """End it, and look at its log: one warning, which names the version and what is missing."""
    process.process.send_signal(signal.SIGTERM)
    result = await process.ended()
    assert result.status == 0, result.errors
    assert result.complaints == []
    [warning] = [line for line in result.errors.splitlines() if WARNING in line]
    assert " WARNING outbox.broker " in warning
    assert f"aiormq={VERSION}" in warning
    for name in names:
        assert name in warning


@pytest.mark.parametrize(
    "names",
    [
        # A reader, a writer and a queue of others.
        ("__reader",),
        ("__writer",),
        ("write_queue",),
        ("__last_frame_time",),
        ("connection_tune",),
        ("HEARTBEAT_GRACE_MULTIPLIER",),
        # Gone where they would be imported or inherited.
        ("TransportFactory", "TCPTransportFactory", "TLSTransportFactory", "transport_factory"),
        ("ChannelFrame",),
        ("FrameReceiver", "frame_receiver", "reader"),
        # Channels.
        ("__close_event",),
        ("_on_confirm_frame", "_on_return_frame"),
        ("_get_frame", "_read_content"),
        ("frame_buffer_size",),
        ("__handle_connection_blocked", "__connection_unblocked"),
    ],
    ids=lambda names: names[0],
)
async def test_a_relay_and_a_worker_go_on_by_the_plain_path(
    traffic: Traffic, tmp_path: Path, names: Sequence[str]
) -> None:
    (tmp_path / "shop_listeners.py").write_text(LISTENERS.format(exchange=traffic.exchange_name))
    variables = {
        "PYTHONPATH": changed_aiormq(tmp_path, *names),
        "OUTBOX_DATABASE_URL": traffic.postgres_url,
        "OUTBOX_BROKER_URL": traffic.rabbitmq_url,
        "OUTBOX_EXCHANGE_NAME": traffic.exchange_name,
    }
    async with (
        module_process("outbox_worker", "shop_listeners", variables=variables, folder=tmp_path) as worker,
        module_process("outbox_relay", variables=variables) as relay,
    ):
        await worker.answers("/readyz", "200 ok\n")
        await relay.answers("/readyz", "200 ok\n")
        await traffic.emit_many(20, "works")
        await traffic.emit_many(2, "fails")
        expected = {f"works-{n}" for n in range(20)} | {
            f"fails-{n}-{attempt}" for n in range(2) for attempt in (1, 2)
        }
        await until(
            lambda: expected <= {file.name for file in tmp_path.iterdir()}, "every listener to be called"
        )
        await traffic.until_ids([])
        await stopped(relay, names[0])
        await stopped(worker, names[0])


async def test_the_command_goes_on_by_the_plain_path(traffic: Traffic, tmp_path: Path) -> None:
    (tmp_path / "shop_listeners.py").write_text(LISTENERS.format(exchange=traffic.exchange_name))
    queue = f"{traffic.exchange_name}.refused"
    variables = {
        "PYTHONPATH": changed_aiormq(tmp_path, "__reader", "__close_event"),
        "OUTBOX_DATABASE_URL": traffic.postgres_url,
        "OUTBOX_BROKER_URL": traffic.rabbitmq_url,
        "OUTBOX_EXCHANGE_NAME": traffic.exchange_name,
    }
    async with (
        module_process("outbox_worker", "shop_listeners", variables=variables, folder=tmp_path) as worker,
        module_process("outbox_relay", variables=variables) as relay,
    ):
        await worker.answers("/readyz", "200 ok\n")
        await traffic.emit_many(3, "refused")
        await until(lambda: has_messages(traffic, dead_letter_queue(queue), 3), "three dead letters")
        (tmp_path / "accept").touch()

        async with module_process("outbox_cli", "dlq", "redrive", queue, variables=variables) as command:
            told = await command.ended()

        # A command logs nothing but errors.
        told_in_full = (told.status, told.output, told.errors)
        assert told_in_full == (0, f"{queue}: 3 dead letters redriven\n", "")
        await until(lambda: all((tmp_path / f"refused-{n}").exists() for n in range(3)), "the redriven")
        await stopped(relay)
        await stopped(worker)
