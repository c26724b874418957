"""`outbox relay`, `worker` and `operator`: the parts themselves, under another name."""

import signal
from pathlib import Path

import asyncpg

from outbox import schema
from tests.integration.relay_process import module_process

LISTENERS = """
from outbox import listen

@listen("a", queue="shop.a")
async def on_a(body): ...
"""


async def test_a_relay_runs_until_a_signal(postgres_url: str, rabbitmq_url: str) -> None:
    connection = await asyncpg.connect(postgres_url)
    await schema.create(connection)
    await connection.close()
    urls = {"OUTBOX_DATABASE_URL": postgres_url, "OUTBOX_BROKER_URL": rabbitmq_url}
    async with module_process("outbox_cli", "relay", variables=urls) as process:
        await process.answers("/readyz", "200 ok\n")
        process.process.send_signal(signal.SIGTERM)
        result = await process.ended()
    assert (result.status, result.complaints) == (0, [])


async def test_a_worker_runs_the_listeners_of_where_one_stands(rabbitmq_url: str, tmp_path: Path) -> None:
    (tmp_path / "shop_listeners.py").write_text(LISTENERS)
    async with module_process(
        *("outbox_cli", "worker", "shop_listeners:on_a"),
        variables={"OUTBOX_BROKER_URL": rabbitmq_url},
        folder=tmp_path,
    ) as process:
        await process.answers("/readyz", "200 ok\n")
        process.process.send_signal(signal.SIGINT)
        result = await process.ended()
    assert (result.status, result.complaints) == (0, [])


async def test_what_a_part_cannot_run_with_is_its_own_line_and_status(tmp_path: Path) -> None:
    nowhere = {"KUBECONFIG": str(tmp_path / "nowhere"), "OUTBOX_BROKER_URL": ""}
    for arguments, word in ((["operator"], "KUBECONFIG"), (["worker", "nothing"], "nothing")):
        async with module_process("outbox_cli", *arguments, variables=nowhere, folder=tmp_path) as process:
            result = await process.ended()
        assert result.status == 1
        assert len(result.complaints) == 1, result.errors
        assert word in result.complaints[0]
