"""`python -m shop.app`: a busy day of the shop. Orders are placed, each in a transaction with its messages.

Every second order is given up half-way: its transaction is rolled back, and nobody must ever hear of it.
It may be started again: orders that were placed stay, and what was rolled back is rolled back again.
"""

import argparse
import asyncio
import sys
from datetime import timedelta
from decimal import Decimal

import asyncpg

from outbox import Emitter
from shop import tables
from shop.models import Order

_emitter = Emitter(auto_create_table=True)


class CustomerLeftError(Exception):
    """The customer closed the window before the order was complete."""


async def place(connection: asyncpg.Connection, order: Order, remind_after: timedelta) -> bool:
    """Place an order; tell whether it is new. It is there with all of its messages, or not at all."""
    async with connection.transaction():
        inserted = await connection.fetchval(
            "INSERT INTO orders (id, total) VALUES ($1, $2) ON CONFLICT DO NOTHING RETURNING id",
            order.id,
            order.total,
        )
        if inserted is None:
            return False
        await _emitter.emit(connection, "order.placed", order)
        await _emitter.emit(
            connection, "order.reminder", order, eta=remind_after, timer_id=f"order-{order.id}"
        )
        if order.payment == "card":
            await _emitter.emit(connection, "card.charge", order)
        if order.id % 2 == 0:
            raise CustomerLeftError
    return True


def order_of(number: int) -> Order:
    """The order with this number. Of those that are kept, every fifth is paid by card."""
    return Order(
        id=number,
        email=f"customer-{number}@example.com",
        total=Decimal(number) * Decimal("9.90"),
        payment="card" if number % 10 == 1 else "invoice",
    )


async def _run(first: int, count: int, per_second: float, remind_after: timedelta) -> None:
    placed = rolled_back = 0
    connection = await tables.connect()
    try:
        await connection.execute(tables.SQL)
        for number in range(first, first + count):
            try:
                placed += await place(connection, order_of(number), remind_after)
            except CustomerLeftError:
                rolled_back += 1
            if per_second:
                await asyncio.sleep(1 / per_second)
    finally:
        await connection.close()
    print(f"{placed} orders placed, {rolled_back} rolled back", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="shop.app", description=__doc__)
    parser.add_argument("--first", type=int, default=1, help="the first order's number")
    parser.add_argument("--orders", type=int, default=1000, help="how many orders are begun")
    parser.add_argument("--per-second", type=float, default=0, help="how fast; 0 for as fast as possible")
    parser.add_argument("--remind-after", type=float, default=30, help="seconds until a reminder")
    arguments = parser.parse_args()
    remind_after = timedelta(seconds=arguments.remind_after)
    try:
        asyncio.run(_run(arguments.first, arguments.orders, arguments.per_second, remind_after))
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        print(f"the shop's database: {error or type(error).__name__}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
