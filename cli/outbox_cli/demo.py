"""`make demo`: emit from a small shop and show what its outbox table holds.

Ten orders, each in a transaction with its own row; three of them fail and are rolled back. What the table
holds afterwards must be exactly the messages of the other seven.
"""

import asyncio
import json
import sys
from dataclasses import dataclass

import asyncpg
from rich.console import Console
from rich.table import Table

import outbox
from outbox_cli.local import LocalServiceError, start

_ORDERS = range(1, 11)
_emitter = outbox.Emitter()


@dataclass(frozen=True)
class OrderPlaced:
    """What the shop says when an order is placed."""

    order_id: int
    """The order's number."""
    total: str
    """What it costs."""


class CardDeclinedError(Exception):
    """The payment failed, so nothing about the order may stay."""


async def _place_order(connection: asyncpg.Connection, number: int) -> None:
    async with connection.transaction():
        await connection.execute("INSERT INTO orders (id) VALUES ($1)", number)
        placed = OrderPlaced(number, f"{number * 9.9:.2f}")
        await _emitter.emit(connection, "order.placed", placed, ordering_key=f"order-{number}")
        await _emitter.emit(connection, "order.reminder", number, eta=60_000, timer_id=f"order-{number}")
        if number % 3 == 0:
            raise CardDeclinedError


async def _run(url: str, console: Console) -> bool:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("CREATE TABLE orders (id integer PRIMARY KEY)")
        await outbox.schema.create(connection)
        rolled_back = set()
        for number in _ORDERS:
            try:
                await _place_order(connection, number)
            except CardDeclinedError:
                rolled_back.add(number)
        rows = await connection.fetch("SELECT * FROM outbox_table ORDER BY id")
    finally:
        await connection.close()
    _show(rows, console)
    return _adds_up(rows, rolled_back, console)


def _show(rows: list[asyncpg.Record], console: Console) -> None:
    table = Table(title="outbox_table: written with the orders, waiting for the relay")
    for heading in ("id", "routing key", "body", "due in"):
        table.add_column(heading)
    for row in rows:
        due_in = row["send_after"] - row["created_at"]
        table.add_row(
            str(row["id"]), row["routing_key"], row["body"].decode(), f"{due_in.total_seconds():.0f} s"
        )
    console.print(table)


def _adds_up(rows: list[asyncpg.Record], rolled_back: set[int], console: Console) -> bool:
    committed = [number for number in _ORDERS if number not in rolled_back]
    placed = [json.loads(row["body"])["order_id"] for row in rows if row["routing_key"] == "order.placed"]
    reminders = [json.loads(row["body"]) for row in rows if row["routing_key"] == "order.reminder"]
    right = placed == committed and reminders == committed
    console.print(
        f"{len(_ORDERS)} orders, {len(rolled_back)} rolled back, {len(committed)} committed: "
        f"{len(placed)} order.placed and {len(reminders)} order.reminder messages, "
        f"{'as it should be' if right else 'WHICH DOES NOT ADD UP'}"
    )
    return right


def main() -> int:
    try:
        with start(rabbitmq=False) as services:
            return 0 if asyncio.run(_run(services.postgres.url, Console())) else 1
    except LocalServiceError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
