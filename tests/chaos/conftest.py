"""The worlds that chaos tests play in."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from outbox_cli.local import Services
from tests.chaos.harness import World

Measure: TypeAlias = Callable[[str, object], None]


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


@pytest.fixture
def measured(record_property: Callable[[str, object], None], request: pytest.FixtureRequest) -> Measure:
    """Write a measured value down: for people to read, never to assert on."""

    def write_down(name: str, value: object) -> None:
        text = f"{value:.2f}" if isinstance(value, float) else str(value)
        record_property(name, text)
        print(f"measured: {request.node.name}: {name}: {text}")  # noqa: T201 - shown by pytest -rP

    return write_down
