"""`outbox dlq redrive`: to the listener again, and never lost on the way."""

import asyncio
import json
import os
import re
import signal
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta

import asyncpg
import pytest

from outbox import listen, wire
from outbox.topology import Subscription, dead_letter_queue, topology
from outbox_core.publisher import Message
from tests.integration.commanding import QUEUE, Shop, Told, letter, outbox_beside, shop_at, started
from tests.integration.relaying import DEADLINE_SECONDS, until
from tests.integration.working import Calls, workshop_at

DLQ = dead_letter_queue(QUEUE)


@pytest.fixture
async def shop(rabbitmq_url: str) -> AsyncIterator[Shop]:
    async with shop_at(rabbitmq_url) as shop:
        yield shop


async def redrive(url: str, *arguments: str, queue: str = QUEUE) -> Told:
    return await outbox_beside("dlq", "redrive", queue, *arguments, OUTBOX_BROKER_URL=url)


def many(count: int) -> list[Message]:
    return [letter(number, ValueError("no")) for number in range(count)]


async def test_a_redriven_message_is_as_new_and_keeps_its_id(shop: Shop, rabbitmq_url: str) -> None:
    await shop.fill(letter(1, ValueError("no such user")))
    told = await redrive(rabbitmq_url)
    assert (told.status, told.output, told.errors) == (0, "shop.mail: 1 dead letter redriven\n", "")
    [message] = await shop.take(QUEUE)
    assert message.message_id == "message-1"
    assert message.body == b'{"number": 1}'
    assert message.content_type == "application/json"
    assert dict(message.headers) == {wire.ROUTING_KEY: "user.created", wire.ATTEMPT: 1, "colour": "red"}
    assert message.rare is None  # which it would have where it was not persistent
    assert await shop.depths() == (0, 0)


async def test_all_are_redriven_in_their_order(shop: Shop, rabbitmq_url: str) -> None:
    await shop.fill(*many(3000))
    told = await redrive(rabbitmq_url, queue=DLQ)
    assert told.output == "shop.mail: 3,000 dead letters redriven\n"
    assert await shop.depths() == (3000, 0)
    taken = [message.message_id for message in await shop.take(QUEUE)]
    assert taken == [f"message-{number}" for number in range(3000)]


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (("--error", "ValueError"), {1, 2}),
        (("--error", "builtins.OSError"), {3}),
        (("--older-than", "1h"), {1, 3}),
        (("--newer-than", "1h"), {2}),
        (("--id", "message-2", "--id", "message-3"), {2, 3}),
        (("--limit", "2"), {1, 2}),
        (("--error", "ValueError", "--older-than", "1h"), {1}),
    ],
)
async def test_only_what_fits_is_redriven_and_the_rest_stays_in_order(
    shop: Shop, rabbitmq_url: str, arguments: tuple[str, ...], found: set[int]
) -> None:
    await shop.fill(
        letter(1, ValueError("a"), failed=timedelta(hours=3)),
        letter(2, ValueError("b"), failed=timedelta(minutes=10)),
        letter(3, OSError("c"), failed=timedelta(days=2)),
    )
    told = await redrive(rabbitmq_url, *arguments)
    assert told.status == 0
    assert await shop.ids(QUEUE) == Counter(f"message-{number}" for number in found)
    left = [message.message_id for message in await shop.take(DLQ)]
    assert left == [f"message-{number}" for number in (1, 2, 3) if number not in found]


async def test_a_few_are_found_behind_thousands_that_do_not_fit(shop: Shop, rabbitmq_url: str) -> None:
    await shop.fill(*many(5000))
    await shop.fill(*(letter(number, OSError("x")) for number in range(5000, 5010)))
    told = await redrive(rabbitmq_url, "--error", "OSError", "-o", "json")
    assert json.loads(told.output) == [
        {"queue": QUEUE, "looked_at": 5010, "matched": 10, "redriven": 10, "refused": [], "unreadable": 0}
    ]
    await until_depths(shop, 10, 5000)
    left = await shop.ids(DLQ)
    assert left == Counter(f"message-{number}" for number in range(5000))


async def test_a_dry_run_tells_and_leaves_everything(shop: Shop, rabbitmq_url: str) -> None:
    await shop.fill(*many(20))
    told = await redrive(rabbitmq_url, "--dry-run", "--limit", "5")
    assert told.output == "shop.mail: 5 dead letters would be redriven\n"
    await until_depths(shop, 0, 20)


async def test_a_rate_redrives_all_the_same(shop: Shop, rabbitmq_url: str) -> None:
    await shop.fill(*many(30))
    assert (await redrive(rabbitmq_url, "--rate", "100")).status == 0
    assert await shop.depths() == (30, 0)


async def test_what_the_broker_gave_up_is_redriven_with_its_own_routing_key(
    shop: Shop, rabbitmq_url: str
) -> None:
    await shop.broken_off("user.created", b"1")
    assert (await redrive(rabbitmq_url)).status == 0
    [message] = await shop.take(QUEUE)
    assert dict(message.headers) == {wire.ROUTING_KEY: "user.created", wire.ATTEMPT: 1}


@pytest.mark.parametrize("verb", ["redrive", "purge"])
@pytest.mark.parametrize("how", ["--dry-run", "--yes"])
async def test_each_id_that_is_not_there_is_named(shop: Shop, rabbitmq_url: str, verb: str, how: str) -> None:
    await shop.fill(*many(2))
    arguments = ["dlq", verb, QUEUE, *(f"--id={name}" for name in ("message-1", "nobody", "none"))]
    if how == "--dry-run" or verb == "purge":
        arguments.append(how)
    told = await outbox_beside(*arguments, OUTBOX_BROKER_URL=rabbitmq_url)
    assert told.status == 1
    assert "1 dead letter" in told.output
    queue = QUEUE if verb == "redrive" else DLQ
    assert (
        told.errors == f"outbox: no dead letter of {queue} has the id nobody, none; see `outbox dlq show`\n"
    )


async def test_an_id_in_one_of_several_queues_is_found(shop: Shop, rabbitmq_url: str) -> None:
    await shop.broker.declare(topology("shop", [Subscription("shop.other", ("other",), ())]))
    await shop.fill(*many(2))
    told = await outbox_beside(
        *("dlq", "redrive", QUEUE, "shop.other", "--id", "message-1"), OUTBOX_BROKER_URL=rabbitmq_url
    )
    assert (told.status, told.errors) == (0, "")


async def test_letters_that_are_passed_over_are_not_kept_in_memory(
    shop: Shop, rabbitmq_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outbox_cli.redrive.WINDOW", 100)
    monkeypatch.setattr("outbox_cli.queue_reader._BYTES_AT_HAND", 4 << 20)
    await shop.fill(*(letter(number, ValueError("x"), body=b"x" * 20_000) for number in range(1500)))
    for arguments in (("redrive", QUEUE, "--dry-run"), ("redrive", QUEUE, "--id", "nobody")):
        tracemalloc.start()
        try:
            await outbox_beside("dlq", *arguments, OUTBOX_BROKER_URL=rabbitmq_url)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 15_000_000, f"{arguments}: {peak:,} bytes of 30,000,000"
        await until_depths(shop, 0, 1500)


async def test_a_full_queue_keeps_the_rest_in_the_dead_letter_queue(rabbitmq_url: str) -> None:
    full = Subscription(QUEUE, ("user.*",), (), max_length=10)
    async with shop_at(rabbitmq_url, full) as shop:
        await shop.fill(*many(2000))
        told = await redrive(rabbitmq_url)
        assert told.status == 1
        assert told.errors.startswith('outbox: queue "shop.mail" takes no more messages, since it is full; ')
        assert re.fullmatch(r"shop\.mail: \d+ dead letters redriven\n", told.output)
        await until_rested(shop)
        assert set(await shop.ids(QUEUE) + await shop.ids(DLQ)) == {f"message-{n}" for n in range(2000)}


async def test_without_the_listeners_queue_nothing_moves(shop: Shop, rabbitmq_url: str) -> None:
    await shop.fill(*many(5))
    await shop.delete(QUEUE)
    told = await redrive(rabbitmq_url)
    assert told.status == 1
    assert told.errors.startswith('outbox: queue "shop.mail" is not there (')
    assert await shop.broker.depth(DLQ) == 5


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
async def test_a_redrive_that_is_ended_in_the_middle_loses_nothing(
    shop: Shop, rabbitmq_url: str, number: signal.Signals
) -> None:
    await shop.fill(*many(3000))
    async with started(
        *("dlq", "redrive", QUEUE, "--rate", "1000"), OUTBOX_BROKER_URL=rabbitmq_url
    ) as process:

        async def is_under_way() -> bool:
            return await shop.broker.depth(QUEUE) >= 300

        await until(is_under_way, "300 redriven messages")
        process.send_signal(number)
        async with asyncio.timeout(DEADLINE_SECONDS):
            output, errors = await process.communicate()
    await until_rested(shop)
    there, left = await shop.ids(QUEUE), await shop.ids(DLQ)
    assert 300 <= len(there) < 3000
    assert set(there + left) == {f"message-{number}" for number in range(3000)}
    # At most the batch that was under way, a tenth of a second's worth, is in both.
    assert (there + left).total() <= 3000 + 100
    if number is signal.SIGINT:
        assert process.returncode == 130
        told = re.fullmatch(r"shop\.mail: ([\d,]+) dead letters redriven\n", output.decode())
        assert told
        # A batch may have been on its way when the signal came.
        assert len(there) - 100 <= int(told[1].replace(",", "")) <= len(there)
        assert errors == (
            b"outbox: interrupted; nothing is lost: what was not redriven is in its dead-letter queue, "
            b"and the last few may be in both\n"
        )


async def test_a_redrive_ends_where_others_have_taken_the_rest(shop: Shop, rabbitmq_url: str) -> None:
    # More than it has at hand, by so much that it cannot have asked for all of them before they are gone.
    await shop.fill(*many(10_000))
    async with started(
        *("dlq", "redrive", QUEUE, "--rate", "1000", "-o", "json"), OUTBOX_BROKER_URL=rabbitmq_url
    ) as process:

        async def is_under_way() -> bool:
            return await shop.broker.depth(QUEUE) >= 100

        await until(is_under_way, "100 redriven messages")
        await shop.purge(DLQ)
        async with asyncio.timeout(DEADLINE_SECONDS):
            output, errors = await process.communicate()
    assert (process.returncode, errors) == (0, b"")
    [told] = json.loads(output)
    assert told["redriven"] < 10_000
    assert await shop.depths() == (told["redriven"], 0)


async def test_a_terminal_sees_how_far_it_is(shop: Shop, rabbitmq_url: str) -> None:
    await shop.fill(*many(50))
    terminal, its_side = os.openpty()
    try:
        async with started(
            "dlq", "redrive", QUEUE, stderr=its_side, OUTBOX_BROKER_URL=rabbitmq_url, TERM="xterm"
        ) as process:
            async with asyncio.timeout(DEADLINE_SECONDS):
                output, _ = await process.communicate()
        seen = os.read(terminal, 1 << 16).decode()
    finally:
        os.close(terminal)
        os.close(its_side)
    assert "50/50" in seen
    assert output == b"shop.mail: 50 dead letters redriven\n"


async def test_an_exactly_once_listener_handles_what_is_redriven_once(
    rabbitmq_url: str, postgres_url: str
) -> None:
    calls, is_mended = Calls(), asyncio.Event()
    async with workshop_at(rabbitmq_url) as workshop:

        @listen("order.placed", queue=workshop.queue(), exactly_once=True, retry_delays=())
        async def book(body: int, connection: asyncpg.Connection, attempt_count: int) -> None:
            calls.note(body, attempt_count)
            if not is_mended.is_set():
                raise ValueError("not yet")

        await workshop.working(book, db_engine_url=postgres_url, auto_create_table=True)
        await workshop.publish("order.placed", 7)
        await workshop.until_depth(dead_letter_queue(book.queue), 1)
        is_mended.set()
        told = await redrive(rabbitmq_url, queue=book.queue)
        assert told.status == 0
        await workshop.until_called(calls, 2)
        await workshop.until_empty(book.queue)
        assert calls.attempts == [1, 1]
        assert await workshop.depth(dead_letter_queue(book.queue)) == 0


async def until_depths(shop: Shop, waiting: int, dead: int) -> None:
    """What a closed channel gave back is counted a moment later."""

    async def holds() -> bool:
        return await shop.depths() == (waiting, dead)

    await until(holds, f"{waiting} messages and {dead} dead letters")


async def until_rested(shop: Shop) -> None:
    """Until the broker has noticed that the command has gone, and has taken back what that had."""

    async def holds() -> bool:
        return await shop.consumers(DLQ) == 0

    await until(holds, f"{DLQ} to have no consumer")
