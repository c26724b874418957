"""The worker as a process: how it starts, says what is wrong, tells whether it is ready, and ends."""

import signal
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from outbox.topology import Subscription, topology
from outbox_cli.local.ports import free_ports
from outbox_core.broker import Broker
from tests.integration.relay_process import RelayProcess, Result, module_process
from tests.integration.working import Workshop, until, workshop_at

LISTENERS = """
import asyncio, pathlib, time
from outbox import listen

@listen("a", queue="{queue}.a")
async def on_a(body):
    pathlib.Path(f"a-{{body}}").touch()

@listen("slow", queue="{queue}.slow")
async def on_slow(body):
    pathlib.Path(f"slow-{{body}}-began").touch()
    while not pathlib.Path("go").exists():
        await asyncio.sleep(0.01)
    pathlib.Path(f"slow-{{body}}-ended").touch()

@listen("stuck", queue="{queue}.stuck")
def on_stuck(body):
    pathlib.Path(f"stuck-{{body}}-began").touch()
    time.sleep(600)

@listen("code.key", queue="{queue}.in-code", retry_delays=(600,))
async def on_failing(body, attempt_count):
    pathlib.Path(f"failing-{{body}}-{{attempt_count}}").touch()
    raise ValueError("always")

some = [on_a]
"""


@pytest.fixture
async def workshop(rabbitmq_url: str) -> AsyncIterator[Workshop]:
    async with workshop_at(rabbitmq_url) as workshop:
        yield workshop


@pytest.fixture
def folder(tmp_path: Path, workshop: Workshop) -> Path:
    """An application's folder, from which the worker is started."""
    (tmp_path / "shop_listeners.py").write_text(LISTENERS.format(queue=workshop.exchange_name))
    return tmp_path


def worker_process(
    workshop: Workshop, folder: Path, *targets: str, **variables: str
) -> AbstractAsyncContextManager[RelayProcess]:
    given = {"OUTBOX_BROKER_URL": workshop.rabbitmq_url, "OUTBOX_EXCHANGE_NAME": workshop.exchange_name}
    return module_process(
        "outbox_worker", *(targets or ("shop_listeners",)), variables={**given, **variables}, folder=folder
    )


async def result_of(workshop: Workshop, folder: Path, *targets: str, **variables: str) -> Result:
    async with worker_process(workshop, folder, *targets, **variables) as process:
        return await process.ended()


def assert_refuses(result: Result, *words: str) -> None:
    """It has ended with one line for a person, which says all of this."""
    assert result.status == 1
    assert len(result.complaints) == 1, result.errors
    for word in words:
        assert word in result.complaints[0]
    assert "Traceback" not in result.errors


async def exists(path: Path) -> None:
    await until(path.exists, f"{path.name} to be written")


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_with_status_0_when_what_runs_is_done(
    workshop: Workshop, folder: Path, signal_number: signal.Signals
) -> None:
    async with worker_process(workshop, folder) as process:
        await process.answers("/readyz", "200 ok\n")
        await process.answers("/livez", "200 ok\n")
        await workshop.publish("a", 1)
        await exists(folder / "a-1")
        await workshop.publish("slow", 1)
        await exists(folder / "slow-1-began")
        process.process.send_signal(signal_number)
        # Not of the slow one: a quorum queue counts a consumer until it has settled its messages.
        await workshop.until_unconsumed(f"{workshop.exchange_name}.a")
        await workshop.publish("slow", 2)
        await workshop.until_depth(f"{workshop.exchange_name}.slow", 1)
        (folder / "go").touch()
        result = await process.ended()
    assert result.status == 0, result.errors
    assert result.complaints == []
    assert (folder / "slow-1-ended").exists()
    assert not (folder / "slow-2-began").exists()
    assert await workshop.depth(f"{workshop.exchange_name}.slow") == 1


async def test_a_second_signal_ends_it_at_once_and_nothing_is_lost(workshop: Workshop, folder: Path) -> None:
    async with worker_process(workshop, folder) as process:
        await process.answers("/readyz", "200 ok\n")
        await workshop.publish("slow", 1)
        await exists(folder / "slow-1-began")
        process.process.send_signal(signal.SIGTERM)
        # Not of the slow one: a quorum queue counts a consumer until it has settled its messages.
        await workshop.until_unconsumed(f"{workshop.exchange_name}.a")
        process.process.send_signal(signal.SIGTERM)
        result = await process.ended()
    assert result.status == 128 + signal.SIGTERM
    assert not (folder / "slow-1-ended").exists()
    await workshop.until_depth(f"{workshop.exchange_name}.slow", 1)


async def test_a_thread_that_never_ends_does_not_keep_it_here(workshop: Workshop, folder: Path) -> None:
    async with worker_process(workshop, folder, OUTBOX_SHUTDOWN_TIMEOUT="0.2") as process:
        await process.answers("/readyz", "200 ok\n")
        await workshop.publish("stuck", 1)
        await exists(folder / "stuck-1-began")
        process.process.send_signal(signal.SIGTERM)
        result = await process.ended()
    assert result.status == 0, result.errors
    await workshop.until_depth(f"{workshop.exchange_name}.stuck", 1)


async def test_its_metrics_are_served(workshop: Workshop, folder: Path) -> None:
    async with worker_process(workshop, folder, "shop_listeners:some") as process:
        await process.answers("/readyz", "200 ok\n")
        await workshop.publish("a", 1)
        labels = f'exchange_name="{workshop.exchange_name}",queue="{workshop.exchange_name}.a"'
        await process.answers("/metrics", f'outbox_messages_processed_total{{{labels},status="success"}} 1.0')
        await process.answers("/metrics", f'outbox_dlq_messages{{queue="{workshop.exchange_name}.a"}} 0.0')


async def test_readiness_tells_that_the_broker_is_away(workshop: Workshop, folder: Path) -> None:
    [port] = free_ports(1)
    url = f"amqp://shop:s3cret@127.0.0.1:{port}/"
    async with worker_process(workshop, folder, OUTBOX_BROKER_URL=url) as process:
        await process.answers("/readyz", f"waiting: broker 127.0.0.1:{port}, ")
        await process.answers("/livez", "200 ok")
        process.process.send_signal(signal.SIGTERM)
        result = await process.ended()
    assert result.status == 0
    assert result.errors.count("waiting: broker") == 1
    assert "s3cret" not in result.errors


async def test_its_resource_wins_over_its_code(workshop: Workshop, folder: Path) -> None:
    queue, delay = workshop.queue("from.resource"), timedelta(milliseconds=50)
    wanted = Subscription(queue, ("resource.key",), (delay,))
    async with Broker(workshop.rabbitmq_url, name="operator") as broker:
        await broker.declare(topology(workshop.exchange_name, [wanted]))
    variables = {"OUTBOX_PROVISIONED": "true", "OUTBOX_QUEUE": queue, "OUTBOX_RETRY_DELAYS": "0.05"}
    async with worker_process(workshop, folder, "shop_listeners:on_failing", **variables) as process:
        await process.answers("/readyz", "200 ok\n")
        await workshop.publish("resource.key", 1)
        letter = await workshop.dead_letter(queue)
        assert letter.body == b"1"
    assert (folder / "failing-1-1").exists()
    assert (folder / "failing-1-2").exists()
    assert not (folder / "failing-1-3").exists()


async def test_a_resource_is_for_one_listener(workshop: Workshop, folder: Path) -> None:
    result = await result_of(workshop, folder, OUTBOX_QUEUE="shop.mails")
    assert_refuses(result, "'shop.mails' is for one listener", "shop_listeners:on_a, ", "name one as module:")


async def test_help_names_every_variable_and_version_the_version(workshop: Workshop, folder: Path) -> None:
    helped = await result_of(workshop, folder, "--help")
    assert helped.status == 0
    urls_and_probes = ("DATABASE_URL", "BROKER_URL", "PROBE_PORT", "PROBE_HOST")
    for name in (*urls_and_probes, "PREFETCH_COUNT", "QUEUE", "ORDERED"):
        assert f"\n  OUTBOX_{name}\n" in helped.output
    asked = await result_of(workshop, folder, "--version")
    assert (asked.status, asked.output.strip()) == (0, version("outbox-operator"))


async def test_what_it_cannot_run_is_one_line(workshop: Workshop, folder: Path) -> None:
    assert_refuses(await result_of(workshop, folder, OUTBOX_BROKER_URL=""), "OUTBOX_BROKER_URL is not set")
    assert_refuses(await result_of(workshop, folder, "shop_listener"), "there is no module 'shop_listener'")
    assert_refuses(
        await result_of(workshop, folder, "shop_listeners:on_b"), "listeners are: on_a, on_failing, on_slow"
    )
    assert_refuses(
        await result_of(workshop, folder, OUTBOX_PREFETCH_COUNT="many"), "OUTBOX_PREFETCH_COUNT='many'"
    )
    assert_refuses(
        await result_of(workshop, folder, OUTBOX_PROVISIONED="true"), workshop.exchange_name, "a.dlq"
    )


async def test_a_listener_that_lacks_a_database_is_one_line(workshop: Workshop, folder: Path) -> None:
    (folder / "once.py").write_text(
        "from outbox import listen\n@listen('a', exactly_once=True)\nasync def on_a(body): ...\n"
    )
    result = await result_of(workshop, folder, "once")
    assert_refuses(result, "once.on_a", "which takes a database", "OUTBOX_DATABASE_URL")


async def test_a_wrong_password_is_one_line_without_it(workshop: Workshop, folder: Path) -> None:
    parts = urlsplit(workshop.rabbitmq_url)
    user, address = parts.username or "", parts.netloc.rpartition("@")[2]
    url = f"amqp://{user}:s3cret@{address}{parts.path}"
    result = await result_of(workshop, folder, OUTBOX_BROKER_URL=url)
    assert_refuses(result, "the user or the password is wrong")
    assert "s3cret" not in result.output + result.errors
