"""An emit costs the application one round trip to its database, whatever the driver."""

import asyncpg
import pytest

from outbox import OutboxMessage, schema
from tests.integration.doors import DOORS, Door
from tests.integration.wire import counted

WARM_UP = 10
"""asyncpg prepares a statement at its first use, psycopg at its sixth: a round trip each, once."""


@pytest.mark.parametrize("kind", DOORS, ids=lambda kind: kind.label)
async def test_an_emit_is_one_round_trip(kind: type[Door], postgres_url: str) -> None:
    connection = await asyncpg.connect(postgres_url)
    await connection.execute(schema.create_sql())
    await connection.close()
    async with counted(postgres_url) as trips:
        door = kind(trips.url)
        await door.open()
        async with door.transaction():
            for number in range(WARM_UP):
                await door.emit("warm.up", number)
                await door.bulk_emit([OutboxMessage("warm.up", number)])
            before = trips.count
            for number in range(20):
                await door.emit("user.created", number)
            after_emits = trips.count
            await door.bulk_emit([OutboxMessage("user.created", number) for number in range(1000)])
            after_bulk = trips.count
        await door.close()
    assert after_emits - before == 20
    assert after_bulk - after_emits == 1
