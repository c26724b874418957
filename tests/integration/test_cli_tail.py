"""`outbox tail` on a real broker: what is seen, and that nobody gets a message less."""

import asyncio
import json
import re
import signal
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import pytest

from outbox import listen
from outbox_cli.local import Services
from tests.integration.administrator import management, user_without_rights
from tests.integration.commanding import Told, outbox_beside, started
from tests.integration.relaying import DEADLINE_SECONDS
from tests.integration.working import Calls, Workshop, until, workshop_at

TIME = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z  ", re.MULTILINE)


@pytest.fixture
async def workshop(rabbitmq_url: str) -> AsyncIterator[Workshop]:
    async with workshop_at(rabbitmq_url) as workshop:
        await workshop.exchange()
        yield workshop


class Watching:
    """A tail that runs, and has begun to watch."""

    def __init__(self, workshop: Workshop, *arguments: str, patterns: str = "#") -> None:
        self._started = started(
            *("tail", "--exchange", workshop.exchange_name, *arguments),
            OUTBOX_BROKER_URL=workshop.rabbitmq_url,
        )
        self.line = f'outbox: watching {patterns} on exchange "{workshop.exchange_name}"'
        self.process: asyncio.subprocess.Process

    async def __aenter__(self) -> "Watching":
        self.process = await self._started.__aenter__()
        assert await self.says() == self.line
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._started.__aexit__(*error)

    async def says(self) -> str:
        """The next line for a person."""
        assert self.process.stderr is not None
        async with asyncio.timeout(DEADLINE_SECONDS):
            return (await self.process.stderr.readline()).decode().rstrip("\n")

    async def ended(self) -> Told:
        async with asyncio.timeout(DEADLINE_SECONDS):
            output, errors = await self.process.communicate()
        assert self.process.returncode is not None
        return Told(self.process.returncode, output.decode(), errors.decode())


async def until_its_queue_is_gone(services: Services, workshop: Workshop) -> None:
    async def holds() -> bool:
        return await its_queues(services, workshop) == []

    await until(holds, "the queue of tail to be gone")


async def its_queues(services: Services, workshop: Workshop) -> list[str]:
    path = f"queues{urlsplit(workshop.rabbitmq_url).path}"
    names = [queue["name"] for queue in await asyncio.to_thread(management, services, "GET", path)]
    return [name for name in names if name.startswith("outbox.tail.")]


async def test_messages_go_by_and_the_listener_gets_all_of_them(
    workshop: Workshop, services: Services
) -> None:
    calls = Calls()

    @listen("#", queue=workshop.queue())
    async def note(body: bytes) -> None:
        calls.note(body)

    await workshop.working(note)
    async with Watching(workshop, "order.*", "user.#", "--limit", "3", patterns="order.* user.#") as watching:
        await workshop.publish("order.placed", {"id": 1}, message_id="one")
        await workshop.publish("mail.sent", 2)
        await workshop.publish("user", b"\x1b[2J two\nlines")
        last = await workshop.publish("order.paid", 3)
        told = await watching.ended()
    lines = TIME.sub("", told.output).splitlines()
    assert (told.status, told.errors) == (0, "")
    assert lines[0] == 'order.placed              one                                         9 B  {"id": 1}'
    assert lines[1].endswith("       14 B  \\x1b[2J two lines")
    assert lines[2] == f"order.paid                {last}        1 B  3"
    await workshop.until_called(calls, 4)
    await workshop.until_empty(note.queue)
    await until_its_queue_is_gone(services, workshop)


async def test_json_is_one_object_a_line(workshop: Workshop) -> None:
    async with Watching(workshop, "--limit", "2", "-o", "json") as watching:
        await workshop.publish("a", {"id": 1}, message_id="one", headers={"colour": "red"})
        await workshop.publish("b", b"\xff", message_id="two", content_type="image/png")
        told = await watching.ended()
    first, second = map(json.loads, told.output.splitlines())
    assert TIME.match(first.pop("received_at") + "  ")
    assert first == {
        "routing_key": "a",
        "message_id": "one",
        "content_type": "application/json",
        "headers": {"colour": "red"},
        "size": 9,
        "body": {"id": 1},
    }
    assert (second["content_type"], second["body"]) == ("image/png", {"base64": "/w=="})


async def test_bodies_may_be_left_out(workshop: Workshop) -> None:
    async with Watching(workshop, "--limit", "1", "--no-bodies") as watching:
        await workshop.publish("a", "secret", message_id="one")
        told = await watching.ended()
    assert TIME.sub("", told.output) == f"{'a':<24}  {'one':<36}        8 B\n"


async def test_ctrl_c_ends_it_with_status_0(workshop: Workshop, services: Services) -> None:
    async with Watching(workshop) as watching:
        assert len(await its_queues(services, workshop)) == 1
        watching.process.send_signal(signal.SIGINT)
        assert await watching.ended() == Told(0, "", "")
    await until_its_queue_is_gone(services, workshop)


async def test_a_reader_that_has_seen_enough_ends_it_silently(workshop: Workshop) -> None:
    async with Watching(workshop) as watching:
        assert watching.process.stdout is not None
        watching.process._transport.get_pipe_transport(1).close()  # type: ignore[attr-defined]
        await workshop.publish("a", 1)
        async with asyncio.timeout(DEADLINE_SECONDS):
            await watching.process.wait()
            assert watching.process.stderr is not None
            assert await watching.process.stderr.read() == b""
    assert watching.process.returncode == 1


async def test_a_lost_connection_is_told_and_comes_back(workshop: Workshop, services: Services) -> None:
    async with Watching(workshop, "--limit", "2") as watching:
        await workshop.publish("before", 1)
        await asyncio.to_thread(management, services, "DELETE", await its_connection(services, workshop))
        lost = await watching.says()
        assert lost.startswith('outbox: queue "outbox.tail.')
        assert lost.endswith("; waiting for the broker to come back")
        assert await watching.says() == watching.line
        await workshop.publish("after", 2)
        told = await watching.ended()
    assert [line.split()[0] for line in TIME.sub("", told.output).splitlines()] == ["before", "after"]
    assert told.status == 0


async def its_connection(services: Services, workshop: Workshop) -> str:
    """Where the management API has tail's connection, which it lists some seconds later."""
    found: list[str] = []

    async def holds() -> bool:
        path = f"vhosts{urlsplit(workshop.rabbitmq_url).path}/connections"
        for each in await asyncio.to_thread(management, services, "GET", path):
            if each.get("client_properties", {}).get("connection_name") == "outbox command":
                found.append(each["name"])
        return bool(found)

    await until(holds, "the broker to list the connection of tail")
    return f"connections/{quote(found[0], safe='')}"


async def tail(url: str, *arguments: str) -> Told:
    return await outbox_beside("tail", *arguments, OUTBOX_BROKER_URL=url)


async def test_a_missing_exchange_is_one_line_with_the_cure(rabbitmq_url: str) -> None:
    assert await tail(rabbitmq_url, "--exchange", "nowhere") == Told(
        1,
        "",
        'outbox: exchange "nowhere" does not exist; declare it as a durable topic exchange '
        "(an OutboxRelay resource or a self-declaring relay does), or correct the name\n",
    )


async def test_an_exchange_that_cannot_be_is_one_line(rabbitmq_url: str) -> None:
    told = await tail(rabbitmq_url, "--exchange", "no*where")
    assert (told.status, told.output) == (1, "")
    assert told.errors.startswith("outbox: exchange 'no*where': '*' cannot be in a name; ")


@pytest.mark.parametrize(
    ("rights", "words"),
    [
        ({"configure": "^$", "write": ".*", "read": ".*"}, "access to queue 'outbox.tail."),
        ({"configure": ".*", "write": ".*", "read": "^outbox.tail"}, "access to exchange 'outbox-"),
    ],
)
async def test_a_missing_permission_is_one_line(
    workshop: Workshop, services: Services, rights: dict[str, str], words: str
) -> None:
    parts = urlsplit(workshop.rabbitmq_url)
    with user_without_rights(services) as user:
        management(services, "PUT", f"permissions{parts.path}/{user}", rights)
        url = urlunsplit(parts._replace(netloc=f"{user}:{user}@{parts.hostname}:{parts.port}"))
        told = await tail(url, "--exchange", workshop.exchange_name)
    assert told.status == 1
    assert words in told.errors
    assert told.errors.endswith(
        "; give the user this permission: configure, write and read for ^outbox[.]tail[.], "
        "and read for the exchange\n"
    )
    assert told.errors.count("\n") == 1
