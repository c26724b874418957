"""The example's application, as its Job runs it."""

import asyncio
import os
import sys
from pathlib import Path

import asyncpg

SHOP = Path(__file__).parents[2] / "examples" / "shop"
DEADLINE_SECONDS = 60


async def day(url: str) -> str:
    """Run the application, and give what it printed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "shop.app",
        "--orders=20",
        cwd=SHOP,
        env={**os.environ, "SHOP_DATABASE_URL": url},
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(DEADLINE_SECONDS):
        output, _ = await process.communicate()
    assert process.returncode == 0
    return output.decode()


async def test_half_of_the_orders_are_rolled_back_and_nothing_is_said_of_them(postgres_url: str) -> None:
    assert await day(postgres_url) == "10 orders placed, 10 rolled back\n"
    connection = await asyncpg.connect(postgres_url)
    orders = {row["id"] for row in await connection.fetch("SELECT id FROM orders")}
    rows = await connection.fetch(
        "SELECT routing_key, count(*), array_agg((convert_from(body, 'UTF8')::jsonb->>'id')::bigint) AS ids"
        " FROM outbox_table GROUP BY 1"
    )
    await connection.close()
    assert orders == set(range(1, 20, 2))
    assert {row["routing_key"]: row["count"] for row in rows} == {
        "order.placed": 10,
        "order.reminder": 10,
        "card.charge": 2,
    }
    assert all(orders >= set(row["ids"]) for row in rows)


async def test_started_again_it_places_no_order_twice(postgres_url: str) -> None:
    await day(postgres_url)
    assert await day(postgres_url) == "0 orders placed, 10 rolled back\n"
