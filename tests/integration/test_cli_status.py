"""`outbox status` on a real database and a real broker, named by their URLs."""

import json
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from outbox import Emitter, schema
from outbox.table import TableName
from outbox.topology import Subscription
from outbox_cli.local import Services
from tests.integration.commanding import QUEUE, Shop, Told, letter, outbox_beside, shop_at
from tests.integration.relaying import until

SUBSCRIPTION = Subscription(QUEUE, ("user.*",), (timedelta(seconds=1), timedelta(minutes=1)))


@pytest.fixture
def management_url(services: Services) -> str:
    """Where it is, without a login: that is the broker URL's."""
    parts = urlsplit(services.rabbitmq.management_url)
    return f"{parts.scheme}://{parts.hostname}:{parts.port}"


async def status(*arguments: str, **environment: str) -> Told:
    return await outbox_beside("status", "--exchange", "shop", *arguments, **environment)


async def fill_table(url: str) -> None:
    """One message that has been due for long, one that is due later, and one that was parked."""
    connection = await asyncpg.connect(url)
    try:
        await schema.create(connection, TableName.parse("outbox_table"))
        emitter = Emitter()
        for eta in (None, timedelta(hours=1), None):
            async with connection.transaction():
                await emitter.emit(connection, "user.created", {}, eta=eta)
        await connection.execute("UPDATE outbox_table SET parked_at = now() WHERE id = 3")
        await connection.execute(
            "UPDATE outbox_table SET send_after = now() - interval '10 minutes' WHERE id = 1"
        )
    finally:
        await connection.close()


async def consumed(shop: Shop, queue: str) -> Any:
    consumer = await shop.broker.consumer(queue, 1, lambda _: None)

    async def is_known() -> bool:
        return await shop.consumers(queue) == 1

    await until(is_known, f"the consumer of {queue}")
    return consumer


async def test_what_is_well_is_shown_with_exit_code_0(
    postgres_url: str, rabbitmq_url: str, management_url: str
) -> None:
    assert (await outbox_beside("schema", "create", OUTBOX_DATABASE_URL=postgres_url)).status == 0
    async with shop_at(rabbitmq_url, SUBSCRIPTION) as shop:
        consumer = await consumed(shop, QUEUE)
        told = await status(
            *("--database-url", postgres_url, "--broker-url", rabbitmq_url),
            *("--management-url", management_url),
        )
        await consumer.aclose()
    assert told == Told(
        0,
        "TABLE            PENDING   DELAYED   OLDEST   PARKED\n"
        '"outbox_table"   0         0                  0\n'
        "\n"
        "QUEUE       WAITING   CONSUMERS   DLQ\n"
        "shop.mail   0         1           0\n"
        "\n"
        "DELAY TIER       WAITING\n"
        "shop.delay_1s    0\n"
        "shop.delay_60s   0\n"
        "\n"
        "nothing looks wrong\n",
        "",
    )


async def test_what_looks_wrong_is_told_with_its_cure_and_exit_code_2(
    postgres_url: str, rabbitmq_url: str, management_url: str
) -> None:
    await fill_table(postgres_url)
    async with shop_at(rabbitmq_url) as shop:
        await shop.fill(letter(1, ValueError("no such user")), letter(2, ValueError("no such user")))
        environment = {"OUTBOX_DATABASE_URL": postgres_url, "OUTBOX_BROKER_URL": rabbitmq_url}
        told = await status("--management-url", management_url, **environment)
        as_json = await status("--management-url", management_url, "-o", "json", **environment)
    assert told == Told(
        2,
        "TABLE            PENDING   DELAYED   OLDEST   PARKED\n"
        '"outbox_table"   1         1         10m      1\n'
        "\n"
        "QUEUE       WAITING   CONSUMERS   DLQ\n"
        "shop.mail   0         0           2\n"
        "\n"
        "What looks wrong:\n"
        '- table "outbox_table": 1 message is parked; '
        "see `outbox messages list --state parked`, and then `messages retry`\n"
        '- table "outbox_table": the oldest of 1 pending message has been due for 10m; '
        "see that a relay runs on it, and what its log says\n"
        "- queue shop.mail: nobody consumes it; start its worker\n"
        "- queue shop.mail: 2 dead letters; see `outbox dlq list shop.mail`, and then `dlq redrive`\n",
        "",
    )
    said = json.loads(as_json.output)
    assert as_json.status == 2
    assert said["relays"][0]["table"] == {
        "name": '"outbox_table"',
        "pending": 1,
        "delayed": 1,
        "oldest_seconds": said["relays"][0]["table"]["oldest_seconds"],
        "parked": 1,
        "dead_rows": said["relays"][0]["table"]["dead_rows"],
        "horizon_holder": None,
    }
    assert said["queues"][0]["dead_letters"] == 2
    subjects = [each["subject"] for each in said["findings"]]
    assert subjects == ['table "outbox_table"'] * 2 + ["queue shop.mail"] * 2


async def test_without_the_management_api_the_table_is_still_shown(
    postgres_url: str, rabbitmq_url: str
) -> None:
    await outbox_beside("schema", "create", OUTBOX_DATABASE_URL=postgres_url)
    told = await status(
        *("--database-url", postgres_url, "--broker-url", rabbitmq_url),
        *("--management-url", "http://127.0.0.1:1"),
    )
    assert told.status == 1
    assert '"outbox_table"   0' in told.output
    assert told.errors.startswith(
        "outbox: the queues of exchange shop cannot be found: http://127.0.0.1:1 cannot be reached: "
    )
    assert told.errors.endswith("; name them with --queue, or the management API with --management-url\n")
    assert told.errors.count("\n") == 1


async def test_queues_that_are_named_need_no_management_api(rabbitmq_url: str) -> None:
    async with shop_at(rabbitmq_url) as shop:
        consumer = await consumed(shop, QUEUE)
        told = await status("--queue", QUEUE, "--queue", "gone", "--broker-url", rabbitmq_url)
        await consumer.aclose()
    assert told == Told(
        2,
        "QUEUE       WAITING   CONSUMERS   DLQ\n"
        "shop.mail   0         1           0\n"
        "gone        missing\n"
        "\n"
        "What looks wrong:\n"
        "- queue gone: the broker has no such queue; "
        "start its worker, which declares it, or import what `outbox topology` prints\n",
        "",
    )


async def test_a_missing_table_is_told_and_the_queues_are_still_shown(
    postgres_url: str, rabbitmq_url: str
) -> None:
    async with shop_at(rabbitmq_url) as shop:
        consumer = await consumed(shop, QUEUE)
        told = await status(
            "--queue", QUEUE, OUTBOX_DATABASE_URL=postgres_url, OUTBOX_BROKER_URL=rabbitmq_url
        )
        await consumer.aclose()
    assert told.status == 1
    assert "shop.mail   0         1           0\n" in told.output
    assert told.errors == (
        'outbox: relation "outbox_table" does not exist; '
        "run `outbox schema create`, or name the table with --table\n"
    )


async def test_a_missing_exchange_is_told(rabbitmq_url: str, management_url: str) -> None:
    told = await status("--management-url", management_url, OUTBOX_BROKER_URL=rabbitmq_url)
    vhost = urlsplit(rabbitmq_url).path.removeprefix("/")
    line = f"vhost '{vhost}' of {management_url} has no exchange \"shop\"; correct --exchange"
    assert told == Told(1, "", f"outbox: {line}\n")


async def test_a_wrong_password_is_not_shown(postgres_url: str, rabbitmq_url: str) -> None:
    wrong = [
        urlsplit(url)._replace(netloc=f"nobody:geheim@{urlsplit(url).hostname}:{urlsplit(url).port}").geturl()
        for url in (postgres_url, rabbitmq_url)
    ]
    told = await status("--database-url", wrong[0], "--broker-url", wrong[1], "--queue", QUEUE)
    assert told.status == 1
    assert told.errors.count("\n") == 2
    assert "geheim" not in told.errors + told.output
