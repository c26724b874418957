"""Exchanges and queues that somebody else makes, and a user who may make none."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest

from outbox import Listener, listen, wire
from outbox_cli.local import Services
from outbox_core.broker_errors import TopologyMissingError
from tests.integration.administrator import management, user_without_rights
from tests.integration.working import Calls, Workshop, workshop_at


@pytest.fixture
async def workshop(rabbitmq_url: str) -> AsyncIterator[Workshop]:
    async with workshop_at(rabbitmq_url) as workshop:
        yield workshop


@pytest.fixture
def restricted_url(workshop: Workshop, services: Services) -> Iterator[str]:
    """The user of the original library's chapter on pre-provisioning."""
    parts = urlsplit(workshop.rabbitmq_url)
    exchange = re.escape(workshop.exchange_name)
    with user_without_rights(services) as name:
        management(
            services,
            "PUT",
            f"permissions/{parts.path.removeprefix('/')}/{name}",
            {"configure": "^$", "write": f"^({exchange}|{exchange}\\.delay_.*)$", "read": ".*"},
        )
        address = parts.netloc.rpartition("@")[2]
        yield urlunsplit(parts._replace(netloc=f"{name}:{name}@{address}"))


def failing(workshop: Workshop, calls: Calls) -> Listener[..., Any]:
    @listen("a", queue=workshop.queue(), retry_delays=(0.05, 0.1))
    async def handler(body: Any, attempt_count: int) -> None:
        calls.note(body, attempt_count)
        if body == "fails":
            raise ValueError("always")
        if body == "fails once" and attempt_count == 1:
            raise ValueError("once")

    return handler


@pytest.mark.parametrize("provisioned", [True, False])
async def test_a_restricted_user_handles_retries_and_dead_letters(
    workshop: Workshop, restricted_url: str, provisioned: bool
) -> None:
    calls = Calls()
    handler = failing(workshop, calls)
    await (await workshop.working(handler)).stop()
    running = await workshop.working(handler, rmq_connection_url=restricted_url, provisioned=provisioned)
    for number in range(3):
        await workshop.publish("a", "works")
        await workshop.publish("a", "fails once")
        sent = await workshop.publish("a", "fails")
        letter = await workshop.dead_letter(handler.queue)
        # The user may not write there: it is the broker that has moved it, without our words.
        assert letter.message_id == sent
        deaths: Any = letter.headers["x-death"]
        assert deaths[0]["reason"] == "rejected"
        assert wire.ERROR not in letter.headers
        assert letter.headers[wire.ATTEMPT] == 3
        await workshop.until_called(calls, 6 * (number + 1))
    await workshop.until_empty(handler.queue)
    await workshop.until_ready(running)
    assert calls.bodies.count("fails") == 9


async def test_what_is_missing_is_said_at_the_start_all_of_it_by_name(workshop: Workshop) -> None:
    calls = Calls()
    handler = failing(workshop, calls)
    await (await workshop.working(handler)).stop()
    for tier in ("delay_50ms", "delay_100ms"):
        await workshop.channel.queue_delete(f"{workshop.exchange_name}.{tier}")
    worker = workshop.worker(handler, provisioned=True)
    with pytest.raises(TopologyMissingError) as raised:
        await worker.run_until(asyncio.Event())
    for tier in ("delay_50ms", "delay_100ms"):
        assert f"{workshop.exchange_name}.{tier}" in str(raised.value)
    assert handler.queue not in str(raised.value)


async def test_a_user_who_may_make_nothing_is_told_what_is_missing(
    workshop: Workshop, restricted_url: str
) -> None:
    worker = workshop.worker(failing(workshop, Calls()), rmq_connection_url=restricted_url)
    with pytest.raises(TopologyMissingError) as raised:
        await worker.run_until(asyncio.Event())
    assert workshop.exchange_name in str(raised.value)
