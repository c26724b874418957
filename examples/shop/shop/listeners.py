"""What the shop does about its messages: one listener for each OutboxListener in manifests/listeners.yaml.

The queue and the retries are said there, and win over what is said here.
"""

import os

from outbox import Emitter, listen
from shop.models import Order
from shop.tables import note

_emitter = Emitter()


class MailServerAwayError(Exception):
    """The mail server does not answer."""


class CardTerminalError(Exception):
    """The terminal does not know our cards: no retry will help until somebody has mended it."""


@listen("order.placed", exactly_once=True)
async def book(order: Order, connection) -> None:  # type: ignore[no-untyped-def]  # asyncpg has no types
    """Book an order. The booking and the message about it happen once, or not at all."""
    await connection.execute("INSERT INTO bookings (order_id) VALUES ($1)", order.id)
    await _emitter.emit(connection, "order.booked", order)


@listen("order.booked", retry_delays=(1, 2))
async def send_mail(order: Order, attempt_count: int) -> None:
    """Confirm a booking. The first two attempts fail, and the third one comes through."""
    if attempt_count <= 2:
        raise MailServerAwayError(f"order {order.id}: no answer, attempt {attempt_count}")
    await note("mail", order.id, attempt_count)


@listen("card.charge", retry_delays=(1,))
async def charge_card(order: Order, attempt_count: int) -> None:
    """Charge a card. It fails until version 1.1: until then messages end in the dead-letter queue."""
    if os.environ.get("FIXED") != "true":
        raise CardTerminalError(f"order {order.id}: unknown card")
    await note("charge", order.id, attempt_count)


@listen("order.reminder")
async def remind(order: Order, attempt_count: int) -> None:
    """Ask how things are, some time after an order: a timer."""
    await note("reminder", order.id, attempt_count)
