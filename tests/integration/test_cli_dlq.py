"""`outbox dlq` on a real broker: what is seen, what is deleted, and what is said where something is wrong."""

import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from urllib.parse import urlsplit, urlunsplit

import pytest

from outbox.topology import dead_letter_queue
from outbox_cli.local import Services
from tests.integration.administrator import management, user_without_rights
from tests.integration.commanding import QUEUE, Shop, Told, asked, letter, outbox_beside, shop_at
from tests.integration.relaying import until

DLQ = dead_letter_queue(QUEUE)


@pytest.fixture
async def shop(rabbitmq_url: str) -> AsyncIterator[Shop]:
    async with shop_at(rabbitmq_url) as shop:
        await shop.fill(
            letter(1, ValueError("no such user"), failed=timedelta(hours=3, minutes=1)),
            letter(2, ValueError("no such user"), failed=timedelta(minutes=10, seconds=5)),
            letter(3, ConnectionError("the mail server is away"), failed=timedelta(days=2)),
        )
        yield shop


@contextmanager
def deep_recursion() -> Iterator[None]:
    """Others can write what we cannot read."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def nested(depth: int) -> dict[str, object]:
    headers: dict[str, object] = {}
    for _ in range(depth):
        headers = {"a": headers}
    return headers


async def dlq(url: str, *arguments: str, answer: str | None = None) -> Told:
    return await outbox_beside("dlq", *arguments, answer=answer, OUTBOX_BROKER_URL=url)


async def test_a_list_counts_by_error_and_leaves_everything_in_place(shop: Shop, rabbitmq_url: str) -> None:
    for _ in range(2):
        told = await dlq(rabbitmq_url, "list", QUEUE)
        assert told.output == (
            "QUEUE           DEPTH   ERROR                      COUNT   OLDEST   NEWEST\n"
            "shop.mail.dlq   3       builtins.ValueError        2       3h       10m\n"
            "shop.mail.dlq   3       builtins.ConnectionError   1       2d       2d\n"
        )
    assert await shop.depths() == (0, 3)
    assert [each.message_id for each in await shop.take(DLQ)] == ["message-1", "message-2", "message-3"]


async def test_a_list_of_a_sample_says_so(shop: Shop, rabbitmq_url: str) -> None:
    told = await dlq(rabbitmq_url, "list", QUEUE, "--sample", "1")
    assert told.output.splitlines()[-1] == (
        "errors are those of the first 1 dead letter; --sample looks at more"
    )
    [listed] = json.loads((await dlq(rabbitmq_url, "list", DLQ, "--sample", "1", "-o", "json")).output)
    assert (listed["queue"], listed["depth"], listed["looked_at"]) == (DLQ, 3, 1)
    assert [error["type"] for error in listed["errors"]] == ["builtins.ValueError"]


async def test_an_empty_queue_is_listed_with_nothing_in_it(rabbitmq_url: str) -> None:
    async with shop_at(rabbitmq_url):
        told = await dlq(rabbitmq_url, "list", QUEUE)
    assert told.output == "QUEUE           DEPTH   ERROR   COUNT   OLDEST   NEWEST\nshop.mail.dlq   0\n"


async def test_one_dead_letter_is_shown_whole(shop: Shop, rabbitmq_url: str) -> None:
    told = await dlq(rabbitmq_url, "show", QUEUE, "message-3")
    [found] = json.loads((await dlq(rabbitmq_url, "show", QUEUE, "message-3", "-o", "json")).output)
    assert told.output == (
        "message id:    message-3\n"
        "routing key:   user.created\n"
        "error:         builtins.ConnectionError\n"
        "says:          the mail server is away\n"
        "attempts:      3\n"
        f"first failed:  {found['first_failed_at']}\n"
        f"last failed:   {found['failed_at']}\n"
        "traceback:\n"
        "  ConnectionError: the mail server is away\n"
        "content type:  application/json\n"
        "header colour: red\n"
        "body:\n"
        "  {\n"
        '    "number": 3\n'
        "  }\n"
    )
    assert found["body"] == {"number": 3}
    assert found["headers"] == {"colour": "red"}
    assert await shop.depths() == (0, 3)


async def test_dead_letters_are_shown_by_error_type(shop: Shop, rabbitmq_url: str) -> None:
    found = json.loads((await dlq(rabbitmq_url, "show", QUEUE, "--error", "ValueError", "-o", "json")).output)
    assert [each["message_id"] for each in found] == ["message-1", "message-2"]


async def test_what_would_play_tricks_with_a_terminal_is_written_out(rabbitmq_url: str) -> None:
    async with shop_at(rabbitmq_url) as shop:
        await shop.fill(letter(1, ValueError("\x1b[31mred\x07"), body=b"\x1b[2J"))
        told = await dlq(rabbitmq_url, "show", QUEUE)
    assert "\x1b" not in told.output
    assert "\\x1b[31mred\\x07" in told.output


async def test_what_the_broker_gave_up_tells_its_reason(rabbitmq_url: str) -> None:
    async with shop_at(rabbitmq_url) as shop:
        await shop.broken_off("user.created", b"1")
        [found] = json.loads((await dlq(rabbitmq_url, "show", QUEUE, "-o", "json")).output)
    assert found["error_type"] == "rejected"
    assert found["routing_key"] == "user.created"
    assert found["failed_at"] is not None


async def test_what_cannot_be_read_is_told_and_survives_every_look(rabbitmq_url: str) -> None:
    async with shop_at(rabbitmq_url) as shop:
        with deep_recursion():
            await shop.fill(
                replace(letter(1, ValueError("x")), headers=nested(1500)), letter(2, ValueError("y"))
            )
        listed = await dlq(rabbitmq_url, "list", QUEUE)
        assert listed.output == (
            "QUEUE           DEPTH   ERROR                 COUNT   OLDEST   NEWEST\n"
            "shop.mail.dlq   2       builtins.ValueError   1       5m       5m\n"
            "shop.mail.dlq   2       (cannot be read)      1\n"
        )
        line = "outbox: a dead letter cannot be read and stays, because its headers are nested too deeply\n"
        shown = await dlq(rabbitmq_url, "show", QUEUE)
        assert (shown.status, shown.errors) == (0, line)
        purged = await dlq(rabbitmq_url, "purge", QUEUE, "--yes")
        assert (purged.status, purged.errors) == (0, line)
        assert await shop.broker.depth(DLQ) == 1
        redriven = await dlq(rabbitmq_url, "redrive", QUEUE)
        assert (redriven.status, redriven.errors) == (0, line)
        assert await shop.depths() == (0, 1)


async def test_a_purge_asks_and_deletes_what_fits(shop: Shop, rabbitmq_url: str) -> None:
    asked = await dlq(rabbitmq_url, "purge", QUEUE, "--error", "ValueError", answer="no\n")
    assert asked.status == 1
    assert asked.errors == (
        "Delete 2 dead letters of shop.mail.dlq, which no listener has handled? [y/N] "
        "outbox: nothing was done\n"
    )
    assert await shop.depths() == (0, 3)

    told = await dlq(rabbitmq_url, "purge", QUEUE, "--error", "ValueError", answer="yes\n")
    assert (told.status, told.output) == (
        0,
        "shop.mail.dlq: 2 dead letters deleted\n",
    )
    assert [each.message_id for each in await shop.take(DLQ)] == ["message-3"]


async def test_a_purge_deletes_only_the_letters_its_question_counted(shop: Shop, rabbitmq_url: str) -> None:
    async with asked("dlq", "purge", QUEUE, OUTBOX_BROKER_URL=rabbitmq_url) as answer:
        await until_depth(shop, 3)
        # As many as before, but one of those counted has gone, and another failed at the same time.
        [first, *others] = await shop.take(DLQ)
        await shop.fill(replace(first, message_id="message-4"), *others, letter(1, ValueError("again")))
        told = await answer("y")
    assert "Delete 3 dead letters of shop.mail.dlq" in told.errors
    assert (told.status, told.output) == (
        0,
        "shop.mail.dlq: 2 dead letters deleted, and 1 of the 3 counted were not found again, "
        "2 of those looked at left as they were\n",
    )
    assert [each.message_id for each in await shop.take(DLQ)] == ["message-4", "message-1"]


async def test_a_purge_of_everything_empties_the_queue(shop: Shop, rabbitmq_url: str) -> None:
    dry = await dlq(rabbitmq_url, "purge", QUEUE, "--dry-run")
    assert dry.output == "shop.mail.dlq: 3 dead letters would be deleted\n"
    assert (await dlq(rabbitmq_url, "purge", QUEUE, "--yes")).status == 0
    assert await shop.depths() == (0, 0)


async def until_depth(shop: Shop, dead: int) -> None:
    """What a closed channel gave back is counted a moment later."""

    async def holds() -> bool:
        return await shop.broker.depth(DLQ) == dead

    await until(holds, f"{dead} dead letters")


async def test_a_missing_queue_is_one_line_with_the_cure(rabbitmq_url: str) -> None:
    told = await dlq(rabbitmq_url, "list", "nobody")
    assert told.status == 1
    assert told.errors.startswith('outbox: queue "nobody.dlq" is not there (')
    assert told.errors.endswith("or correct the name\n")
    assert told.errors.count("\n") == 1


async def test_a_wrong_password_is_one_line_and_not_shown(rabbitmq_url: str) -> None:
    parts = urlsplit(rabbitmq_url)
    wrong = urlunsplit(parts._replace(netloc=f"{parts.username}:geheim@{parts.hostname}:{parts.port}"))
    told = await dlq(wrong, "list", QUEUE)
    assert told.status == 1
    assert told.errors.startswith(f"outbox: broker {parts.hostname}:{parts.port}, vhost ")
    assert told.errors.count("\n") == 1
    assert "geheim" not in told.errors


async def test_a_missing_permission_is_one_line_and_nothing_is_lost(
    shop: Shop, rabbitmq_url: str, services: Services
) -> None:
    parts = urlsplit(rabbitmq_url)
    with user_without_rights(services) as user:
        vhost = parts.path.removeprefix("/")
        rights = {"configure": "^$", "write": "^$", "read": ".*"}
        management(services, "PUT", f"permissions/{vhost}/{user}", rights)
        url = urlunsplit(parts._replace(netloc=f"{user}:{user}@{parts.hostname}:{parts.port}"))
        told = await dlq(url, "redrive", QUEUE)
    assert told.status == 1
    assert "access to exchange 'amq.default'" in told.errors
    assert told.errors.endswith("; give the user this permission\n")
    assert told.errors.count("\n") == 1
    assert await shop.depths() == (0, 3)
