"""The worlds that chaos tests play in."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from outbox_cli.local import Services, start
from outbox_cli.local.rabbitmq import RabbitMQServer
from tests.chaos.private import world_on
from tests.chaos.workplace import Workplace
from tests.chaos.world import World
from tests.integration.administrator import rabbitmqctl

Measure: TypeAlias = Callable[[str, object], None]
MakeWorkplace: TypeAlias = Callable[..., Awaitable[Workplace]]


@pytest.fixture
async def empty_world(
    services: Services, postgres_url: str, rabbitmq_url: str, tmp_path: Path
) -> AsyncIterator[World]:
    """A database and a vhost on the shared services, without a queue."""
    async with World(services, postgres_url, rabbitmq_url, tmp_path) as world:
        yield world


@pytest.fixture
async def world(empty_world: World) -> World:
    """The same with one queue that everything arrives in, and its consumer."""
    await empty_world.bind()
    await empty_world.consume()
    return empty_world


@pytest.fixture(scope="module")
def private() -> Iterator[Services]:
    """A pair that the tests of a module may take away."""
    with start(environment={}) as services:
        yield services


@pytest.fixture
async def empty_private_world(private: Services, tmp_path: Path) -> AsyncIterator[World]:
    """A database and a vhost of it, without a queue."""
    async with world_on(private, tmp_path) as world:
        yield world


@pytest.fixture
def alarm(private: Services) -> Iterator[Callable[[bool], None]]:
    """Raises and clears the memory alarm of the private broker."""
    broker = private.rabbitmq
    if not isinstance(broker, RabbitMQServer):
        pytest.skip("needs RabbitMQ from the programs on this machine")

    def switch(on: bool) -> None:
        rabbitmqctl(broker, "set_vm_memory_high_watermark", "0.00001" if on else "0.6")

    yield switch
    switch(False)


@pytest.fixture
async def workplace(empty_world: World) -> AsyncIterator[MakeWorkplace]:
    """Makes a workplace of the world, for the listeners that are named, and clears it up."""
    async with workplaces(empty_world) as make:
        yield make


@pytest.fixture
async def private_workplace(empty_private_world: World) -> AsyncIterator[MakeWorkplace]:
    """The same on services that may be taken away."""
    async with workplaces(empty_private_world) as make:
        yield make


@asynccontextmanager
async def workplaces(world: World) -> AsyncIterator[MakeWorkplace]:
    """Makes workplaces until the block ends."""
    made: list[Workplace] = []

    async def make(*listeners: str, **options: Any) -> Workplace:
        made.append(Workplace(world, listeners, **options))
        await made[-1].prepare()
        return made[-1]

    try:
        yield make
    finally:
        for each in made:
            await each.end()


@pytest.fixture
def measured(record_property: Callable[[str, object], None], request: pytest.FixtureRequest) -> Measure:
    """Write a measured value down: for people to read, never to assert on."""

    def write_down(name: str, value: object) -> None:
        text = f"{value:.2f}" if isinstance(value, float) else str(value)
        record_property(name, text)
        print(f"measured: {request.node.name}: {name}: {text}")  # noqa: T201 - shown by pytest -rP

    return write_down
