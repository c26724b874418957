"""A worker that is killed between every two steps of handling one message, and another that finishes."""

import signal
from collections.abc import Iterable
from typing import Any
from uuid import UUID, uuid4

import pytest

from outbox.topology import dead_letter_queue
from tests.chaos.conftest import MakeWorkplace
from tests.chaos.fatal_step import last_words
from tests.chaos.process import Process
from tests.chaos.trouble import ALWAYS, with_failures
from tests.chaos.waiting import eventually
from tests.chaos.workplace import Workplace

# What is sent over a network may arrive or not when its sender dies: that is a moment of its own.
ACKED = ["before ack", "before flush", "after flush", "later flush"]
PUBLISHED = ["before publish", "during publish", *ACKED]
ONCE = ["before delivery", "before begin", "during begin", "before call", "before emit", "during emit"]
ONCE += ["before write", "during write", "before commit", "during commit", *ACKED]
DEDUPLICATING = ["before delivery", "before find", "during find", "before call", "before write"]
DEDUPLICATING += ["during write", "before note", "during note", *ACKED]
FAILING = ["before rollback", "during rollback", *PUBLISHED]


def moments(listener: str, names: Iterable[str], failures: int) -> list[Any]:
    """The parameters of a test: the listener, when and where it is killed, how often its message fails."""
    path = {0: "handled", 1: "retried", ALWAYS: "given-up"}[failures]
    return [
        pytest.param(listener, *name.split(), failures, id=f"{listener}-{path}-{name.replace(' ', '-')}")
        for name in names
    ]


async def killed_at(place: Workplace, when: str, step: str, message_id: UUID) -> Process:
    """Give a message to a worker that dies of this step; the worker, when the database knows of its death."""
    worker = place.launch("tests.chaos.fatal_step", when, step)
    await worker.ready()
    await place.publish(message_id)
    assert await worker.ended() == -signal.SIGKILL, worker.log
    assert last_words(when, step) in worker.log
    async with place.world.database() as database:

        async def is_forgotten() -> bool:
            sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'outbox-worker'"
            here = " AND datname = current_database()"
            return bool(await database.fetchval(sessions + here) == 0)

        await eventually("the sessions of the dead worker have ended", is_forgotten)
    return worker


async def finished(place: Workplace, message_id: UUID, *, is_given_up: bool) -> None:
    """Have another worker finish, and see that it leaves nothing in the queues."""
    listener = place.listeners[0]
    await place.start()

    async def is_done() -> bool:
        if is_given_up:
            return await place.depth(dead_letter_queue(listener)) > 0
        return message_id in await place.handled(listener)

    await eventually("the message is done with", is_done)
    await place.leave()


@pytest.mark.parametrize(
    ("listener", "when", "step", "failures"),
    [
        *moments("once", ONCE, 0),
        *moments("once", FAILING, 1),
        *moments("once", FAILING, ALWAYS),
    ],
)
async def test_exactly_once_survives_a_kill_between_every_two_steps(
    workplace: MakeWorkplace, listener: str, when: str, step: str, failures: int
) -> None:
    place = await workplace(listener, trouble=True)
    message_id = with_failures(uuid4(), failures)
    await killed_at(place, when, step, message_id)
    is_given_up = failures == ALWAYS
    await finished(place, message_id, is_given_up=is_given_up)
    async with place.world.database() as database:
        effects = await database.fetch("SELECT message_id, follow_up FROM effects")
        emitted = await database.fetch("SELECT message_id FROM outbox_table")
    assert [row["message_id"] for row in effects] == ([] if is_given_up else [message_id])
    assert [row["message_id"] for row in emitted] == [row["follow_up"] for row in effects]
    assert set(await place.dead_letters(listener)) == ({message_id} if is_given_up else set())


@pytest.mark.parametrize(
    ("listener", "when", "step", "failures"),
    [
        *moments("deduplicating", DEDUPLICATING, 0),
        *moments("deduplicating", PUBLISHED, 1),
        *moments("deduplicating", PUBLISHED, ALWAYS),
    ],
)
async def test_deduplication_survives_a_kill_between_every_two_steps(
    workplace: MakeWorkplace, listener: str, when: str, step: str, failures: int
) -> None:
    place = await workplace(listener, trouble=True)
    message_id = with_failures(uuid4(), failures)
    await killed_at(place, when, step, message_id)
    calls = len(place.calls(listener))
    async with place.world.database() as database:
        noted = "SELECT count(*) FROM outbox_inbox WHERE message_id = $1"
        is_noted = await database.fetchval(noted, str(message_id)) > 0
    is_given_up = failures == ALWAYS
    await finished(place, message_id, is_given_up=is_given_up)
    handled = await place.handled(listener)
    assert set(handled) == (set() if is_given_up else {message_id})
    if is_noted:
        assert len(place.calls(listener)) == calls, "it was called again after it was noted"
    assert set(await place.dead_letters(listener)) == ({message_id} if is_given_up else set())
