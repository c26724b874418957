"""`outbox demo`: what happens in it adds up, and it says so where it does not."""

import json
import sys
from pathlib import Path

import psycopg
import pytest

from outbox_cli.local import Services
from tests.integration.commanding import outbox

QUICKLY = ("--per-second", "100", "--remind-after", "1")
SHOP = Path(__file__).parents[2] / "examples" / "shop"


@pytest.fixture
def urls(services: Services, postgres_url: str, rabbitmq_url: str) -> dict[str, str]:
    return {
        "OUTBOX_POSTGRES_URL": postgres_url,
        "OUTBOX_RABBITMQ_URL": rabbitmq_url,
        "OUTBOX_RABBITMQ_MANAGEMENT_URL": services.rabbitmq.management_url,
    }


def test_all_that_was_committed_is_handled_and_the_table_adds_up(urls: dict[str, str]) -> None:
    told = outbox("demo", "--orders", "20", *QUICKLY, **urls)
    assert told.status == 0, told
    assert told.output == (
        "20 orders begun: 10 placed, 10 rolled back\n"
        "MESSAGE          EMITTED   LISTENER      HANDLED   RETRIES   DEAD LETTERS   REDRIVEN   LEFT OVER\n"
        "order.placed     10        book          10        0         0              0          0\n"
        "order.booked     10        send-mail     10        20        0              0          0\n"
        "card.charge      2         charge-card   2         2         2              2          0\n"
        "order.reminder   10        remind        10        0         0              0          0\n"
        "It adds up: what was committed was handled, once, and of what was rolled back nobody heard.\n"
    )
    assert "2 dead letters were sent to it again\n" in told.errors


def test_what_does_not_add_up_is_said_and_is_no_success(urls: dict[str, str], postgres_url: str) -> None:
    """Somebody heard of an order that was rolled back, and another one got its mail twice."""
    sys.path.insert(0, str(SHOP))
    try:
        from shop import tables
    finally:
        sys.path.remove(str(SHOP))
    with psycopg.connect(postgres_url) as connection:
        connection.execute(tables.SQL.encode())
        connection.execute(
            "INSERT INTO journal (event, order_id, attempt) VALUES ('mail', 1, 3), ('mail', 2, 3)"
        )
    told = outbox("demo", "--orders", "10", *QUICKLY, "-o", "json", **urls)
    assert told.status == 1
    account = json.loads(told.output)
    wrong = [
        "orders that were rolled back were heard of 1 times",
        "order.booked: handled is 7, and 5 would be right",
    ]
    assert account["discrepancies"] == wrong
    assert told.errors.endswith("".join(f"outbox: it does not add up: {line}\n" for line in wrong))
