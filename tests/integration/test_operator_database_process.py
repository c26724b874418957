"""Looks in a process of their own: what ends it ends one look, and the next one finds another process."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from outbox_operator.database_access import DatabaseAccess
from outbox_operator.database_process import DatabaseProcess, DatabaseProcessError
from outbox_operator.resources.relay import Database
from tests.integration.broker_access import serving
from tests.operating.test_operating_hostile import CRASHING, database_that_sends

WANTED = Database.model_validate({"secretRef": {"name": "shop-db"}})


@pytest.fixture
async def process() -> AsyncIterator[DatabaseProcess]:
    async with DatabaseProcess() as process:
        yield process


async def test_a_look_in_the_process_finds_what_is_there(process: DatabaseProcess, postgres_url: str) -> None:
    view = await process.look(DatabaseAccess(postgres_url), WANTED)
    assert view.is_ready
    assert view.backlog == 0


async def test_a_server_that_crashes_the_driver_ends_its_own_look_alone(
    process: DatabaseProcess, postgres_url: str
) -> None:
    async with serving(database_that_sends(CRASHING)) as url:
        hostile = DatabaseAccess(f"{url.replace('http://', 'postgresql://a:b@')}/x")
        looks = [process.look(access, WANTED) for access in (hostile, DatabaseAccess(postgres_url)) * 3]
        found = await asyncio.gather(*looks, return_exceptions=True)
    assert all(isinstance(each, DatabaseProcessError) for each in found[::2])
    assert all(not isinstance(each, BaseException) and each.is_ready for each in found[1::2])
