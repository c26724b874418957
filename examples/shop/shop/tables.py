"""The shop's tables, and what its listeners write down there.

The outbox table is not among them: the relay makes it, or a migration with `outbox.schema.create_sql`.
"""

import os

import asyncpg

SQL = """
CREATE TABLE IF NOT EXISTS orders (id bigint PRIMARY KEY, total numeric NOT NULL);
CREATE TABLE IF NOT EXISTS bookings (order_id bigint PRIMARY KEY);
CREATE TABLE IF NOT EXISTS journal (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event text NOT NULL,
    order_id bigint NOT NULL,
    attempt integer NOT NULL,
    noted_at timestamptz NOT NULL DEFAULT now()
);
"""
_TIMEOUT_SECONDS = 10


async def connect() -> asyncpg.Connection:
    """Connect to the shop's database."""
    return await asyncpg.connect(
        os.environ["SHOP_DATABASE_URL"], timeout=_TIMEOUT_SECONDS, command_timeout=_TIMEOUT_SECONDS
    )


async def note(event: str, order_id: int, attempt: int) -> None:
    """Write down what a listener did, in place of doing it: a message that comes twice has two lines."""
    connection = await connect()
    try:
        await connection.execute(
            "INSERT INTO journal (event, order_id, attempt) VALUES ($1, $2, $3)", event, order_id, attempt
        )
    finally:
        await connection.close()
