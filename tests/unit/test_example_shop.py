"""The example's listeners, without any service: what its README says of them."""

import importlib
from pathlib import Path
from types import ModuleType

import pytest

from outbox import Emitter
from outbox.testing import Clock, MemoryOutbox

SHOP = Path(__file__).parents[2] / "examples" / "shop"
ORDER = {"id": 1, "email": "jo@example.com", "total": "9.90", "payment": "card"}


@pytest.fixture
def listeners(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(SHOP)
    monkeypatch.delenv("FIXED", raising=False)
    return importlib.import_module("shop.listeners")


@pytest.fixture
def noted(listeners: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """What the listeners did: their journal, without its database."""
    lines: list[tuple[str, int, int]] = []

    async def note(event: str, order_id: int, attempt: int) -> None:
        lines.append((event, order_id, attempt))

    monkeypatch.setattr(listeners, "note", note)
    return lines


async def emitted(outbox: MemoryOutbox, routing_key: str) -> None:
    session = outbox.session()
    async with session.begin():
        await Emitter().emit(session, routing_key, ORDER)


async def test_mail_is_sent_at_the_third_attempt(
    listeners: ModuleType, noted: list[tuple[str, int, int]]
) -> None:
    clock = Clock()
    outbox = MemoryOutbox([listeners.send_mail], clock=clock)
    await emitted(outbox, "order.booked")
    for delay in (0, 1, 2):
        assert noted == []
        clock.advance(delay)
        await outbox.drain()
    assert noted == [("mail", 1, 3)]


async def test_a_card_ends_in_the_dead_letter_queue_until_the_listener_is_mended(
    listeners: ModuleType, noted: list[tuple[str, int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    outbox = MemoryOutbox([listeners.charge_card], clock=clock)
    await emitted(outbox, "card.charge")
    await outbox.drain()
    clock.advance(1)
    await outbox.drain()
    assert len(outbox.dead_letters) == 1
    monkeypatch.setenv("FIXED", "true")
    await emitted(outbox, "card.charge")
    await outbox.drain()
    assert noted == [("charge", 1, 1)]
