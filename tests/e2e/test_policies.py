"""What stays on the broker when a resource is deleted: as its deletion policy says."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.broker import contents
from tests.e2e.installation import Installation
from tests.e2e.kubectl import Kubectl, Manifest, until
from tests.e2e.shop import Shop, open_shop
from tests.images.catalogue import SHOP

ORDERS = 10
"""How many orders are placed."""
LISTENERS: dict[str, Manifest] = {
    "kept": {},
    "emptied": {"deletionPolicy": "DeleteIfEmpty"},
    # With a worker, that fails at each message.
    "gone": {
        "deletionPolicy": "Delete",
        "retryDelays": ["1s"],
        "handler": "shop.listeners:charge_card",
        "worker": {"image": SHOP.name},
    },
}


def make(shop: Shop, kind: str, name: str, **spec: Any) -> None:
    """A relay or a listener, and wait until it is ready."""
    made = {"apiVersion": "outbox.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    shop("apply", "--filename=-", text=json.dumps(made))
    shop.wait_until_ready(f"{kind.lower()}/{name}")


def make_listener(shop: Shop, name: str, **spec: Any) -> None:
    """One that hears of all orders."""
    make(shop, "OutboxListener", name, relayRef={"name": "shop"}, bindingKeys=["order.placed"], **spec)


def make_relay(shop: Shop, name: str, **spec: Any) -> str:
    """One with an exchange of its own, which leaves the table to the shop's; its exchange."""
    secrets = {"database": by("shop-db"), "broker": by("shop-rabbitmq")}
    make(shop, "OutboxRelay", name, **secrets, exchange=name, replicas=0, **spec)
    return name


def by(secret: str) -> Manifest:
    return {"secretRef": {"name": secret}}


@pytest.fixture(scope="module")
def shop(kubectl: Kubectl, installation: Installation) -> Iterator[Shop]:
    """A shop with a listener of each policy, whose messages nobody handles."""
    with open_shop(kubectl, "services.yaml", "secrets.yaml", "relay.yaml") as opened:
        for name, spec in LISTENERS.items():
            make_listener(opened, name, **spec)
        opened.place_orders(1, 2 * ORDERS)
        filled = [opened.queue("kept"), opened.queue("emptied"), f"{opened.queue('gone')}.dlq"]
        until("there are messages", lambda: all(opened.queues()[queue] == ORDERS for queue in filled))
        yield opened


def is_gone(shop: Shop, resource: str) -> bool:
    return not shop("get", resource, "--ignore-not-found", "--output=name")


def waits_for(shop: Shop, resource: str, words: str) -> bool:
    """Whether its deletion waits, and says so."""
    found = shop.condition(resource)
    return found.get("reason") == "Deleting" and words in found["message"]


def test_retain_leaves_the_queue_with_its_messages_for_whoever_comes_next(shop: Shop) -> None:
    queue = shop.queue("kept")
    shop("delete", "obl/kept")
    assert shop.queues()[queue] == ORDERS
    make_listener(shop, "kept")
    assert shop.queues()[queue] == ORDERS
    until("kubectl shows the backlog", lambda: shop.get("obl/kept")["status"].get("backlog") == ORDERS)


def test_delete_if_empty_waits_until_the_queue_is(shop: Shop) -> None:
    queue = shop.queue("emptied")
    shop("delete", "obl/emptied", "--wait=false")
    words = f'queue "{queue}" has {ORDERS} messages; consume them, purge it, or set the annotation'
    until("the deletion waits", lambda: waits_for(shop, "obl/emptied", words))
    assert words in shop("describe", "obl/emptied")
    assert shop.queues()[queue] == ORDERS
    shop.rabbitmqctl("purge_queue", queue)
    # In steps of 10 s each, which an operator begins anew that other tests restart meanwhile.
    until("it is gone", lambda: is_gone(shop, "obl/emptied"), seconds=600)
    assert not {queue, f"{queue}.dlq"} & contents(shop).queues.keys()


def test_delete_takes_workers_user_and_queue_with_its_messages(shop: Shop) -> None:
    queue, selector = shop.queue("gone"), shop.get("obl/gone")["status"]["selector"]
    shop("delete", "obl/gone", "--wait=false")
    until("it is gone", lambda: is_gone(shop, "obl/gone"))
    left = contents(shop)
    assert not {queue, f"{queue}.dlq"} & left.queues.keys()
    assert not left.users_of("listener", "gone")
    until("its workers are gone", lambda: not shop.get("pods", f"--selector={selector}")["items"])


def test_retain_leaves_the_exchange_of_a_relay(shop: Shop) -> None:
    exchange = make_relay(shop, "lasting")
    shop("delete", "obr/lasting")
    assert {exchange, f"{exchange}.dlx"} <= contents(shop).exchanges.keys()


def test_delete_if_empty_waits_until_nobody_listens_to_a_relay(shop: Shop) -> None:
    exchange = make_relay(shop, "heard", deletionPolicy="DeleteIfEmpty")
    make(
        shop,
        "OutboxListener",
        "hearer",
        relayRef={"name": exchange},
        bindingKeys=["#"],
        deletionPolicy="Delete",
    )
    shop("delete", "obr/heard", "--wait=false")
    words = f'still bound to it, such as "{shop.queue("hearer")}"; delete their listeners'
    until("the deletion waits", lambda: waits_for(shop, "obr/heard", words))
    shop("delete", "obl/hearer", "--wait=false")
    until("both are gone", lambda: is_gone(shop, "obl/hearer") and is_gone(shop, "obr/heard"))
    left = contents(shop)
    assert not [name for name in (*left.exchanges, *left.queues) if name.startswith(exchange)]


def test_delete_takes_the_exchanges_of_a_relay(shop: Shop) -> None:
    exchange = make_relay(shop, "leaving", deletionPolicy="Delete")
    shop("delete", "obr/leaving", "--wait=false")
    until("it is gone", lambda: is_gone(shop, "obr/leaving"))
    left = contents(shop)
    assert not [name for name in left.exchanges if name.startswith(exchange)]
    assert not left.users_of("relay", "leaving")
