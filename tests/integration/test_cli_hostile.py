"""What a message or a server says does nothing to the terminal of whoever looks at it, by any command."""

import asyncio
import json
from typing import Any

import asyncpg
import pytest

from outbox import schema, wire
from outbox.table import TableName
from outbox_core.publisher import Message
from tests.hostile import HOSTILE, escaped
from tests.integration.commanding import QUEUE, outbox_beside, shop_at, started
from tests.integration.credential_collector import collector
from tests.integration.relaying import DEADLINE_SECONDS

# As far as Postgres and AMQP can carry it.
TEXT = "".join(HOSTILE.values()).replace("\0", "").encode(errors="ignore").decode()
ROW = """
INSERT INTO outbox_table (routing_key, body, content_type, headers, ordering_key, last_error, parked_at)
VALUES ($1, $2, $1, $3, $1, $1, now())
"""


@pytest.mark.parametrize("output", ["table", "json"])
@pytest.mark.parametrize("words", [("list",), ("show", "1")], ids=" ".join)
async def test_a_row_is_shown_without_effect(postgres_url: str, words: tuple[str, ...], output: str) -> None:
    connection = await asyncpg.connect(postgres_url)
    await schema.create(connection, TableName.parse("outbox_table"))
    await connection.execute(ROW, TEXT, TEXT.encode(), json.dumps({TEXT: TEXT}))
    await connection.close()
    told = await outbox_beside("messages", *words, "-o", output, OUTBOX_DATABASE_URL=postgres_url)
    assert (told.status, told.errors) == (0, "")
    assert escaped(told.output)
    if output == "json":
        assert TEXT in str_of(json.loads(told.output))
    else:
        assert "\\u202e" in told.output


def str_of(value: Any) -> str:
    """All texts in a value."""
    match value:
        case dict():
            return str_of([*value.keys(), *value.values()])
        case list():
            return "".join(map(str_of, value))
        case _:
            return str(value)


def letter() -> Message:
    headers = {TEXT[:40]: TEXT, wire.ERROR: TEXT, wire.ERROR_TYPE: TEXT, wire.TRACEBACK: f"{TEXT}\n{TEXT}"}
    return Message(
        routing_key="user.created",
        body=TEXT.encode(),
        message_id=TEXT[:60],
        content_type=TEXT[:60],
        headers={**headers, wire.ROUTING_KEY: TEXT[:60]},
    )


@pytest.mark.parametrize("output", ["table", "json"])
@pytest.mark.parametrize(
    "words",
    [
        ("list", QUEUE),
        ("show", QUEUE),
        ("redrive", QUEUE, "--dry-run"),
        ("purge", QUEUE, "--dry-run"),
        ("show", QUEUE, TEXT[:60]),
    ],
    ids=lambda words: words[0] if len(words) < 3 else f"{words[0]} {words[2][:9]}",
)
async def test_a_dead_letter_is_shown_without_effect(
    rabbitmq_url: str, words: tuple[str, ...], output: str
) -> None:
    async with shop_at(rabbitmq_url) as shop:
        await shop.fill(letter())
        told = await outbox_beside("dlq", *words, "-o", output, OUTBOX_BROKER_URL=rabbitmq_url)
    assert (told.status, told.errors) == (0, "")
    assert told.output
    assert escaped(told.output)


@pytest.mark.parametrize("output", ["table", "json"])
async def test_a_message_that_goes_by_is_shown_without_effect(rabbitmq_url: str, output: str) -> None:
    words = ("tail", "--exchange", "shop", "--limit", "1", "-o", output, "--broker-url", rabbitmq_url)
    async with shop_at(rabbitmq_url) as shop, started(*words, PYTHONIOENCODING="utf-8") as process:
        assert process.stderr is not None
        async with asyncio.timeout(DEADLINE_SECONDS):
            await process.stderr.readuntil(b'"shop"\n')
            publisher = await shop.broker.publisher()
            await publisher.publish("shop", [letter()], DEADLINE_SECONDS)
            shown, errors = await process.communicate()
            await publisher.aclose()
    assert TEXT[:1] not in shown.decode() or output == "json"
    assert escaped(shown.decode())
    assert not errors
    if output == "json":
        assert json.loads(shown)["body"] == TEXT


@pytest.mark.parametrize(
    "words",
    [
        ("status",),
        ("status", "-o", "json"),
        ("messages", "list"),
        ("messages", "retry", "1"),
        ("messages", "purge", "1", "--yes"),
        ("schema", "check"),
        ("schema", "create"),
        ("schema", "upgrade"),
        ("emit", "user.created", "{}"),
    ],
    ids=" ".join,
)
async def test_an_error_of_a_server_is_shown_without_effect(words: tuple[str, ...]) -> None:
    async with collector(refusal=TEXT) as server:
        url = f"postgresql://x:y@127.0.0.1:{server.port}/db"
        told = await outbox_beside(*words, OUTBOX_DATABASE_URL=url)
    assert told.status == 1
    assert "\\x1b[31m" in told.errors
    assert escaped(told.output + told.errors)
