"""A listener that fails at first, and one that fails until somebody mends it."""

import json
from collections import Counter

from tests.e2e.kubectl import rows, until
from tests.e2e.shop import Shop
from tests.images.catalogue import FIXED_SHOP

LISTENER = "obl/charge-card"


def shown(shop: Shop) -> dict[str, str]:
    """What `kubectl get` shows of the listener that needs mending."""
    [cells] = rows(shop("get", LISTENER)).values()
    return cells


def images(shop: Shop) -> set[str]:
    """Those of all its pods. One that is about to go counts: it takes messages until it hears of that."""
    selector = shop.get(LISTENER)["status"]["selector"]
    pods = shop.get("pods", f"--selector={selector}")["items"]
    return {pod["spec"]["containers"][0]["image"] for pod in pods}


def test_a_listener_that_fails_twice_succeeds_the_third_time(shop: Shop) -> None:
    shop.place_orders(1, 200)
    placed = shop.orders()
    assert len(placed) == 100
    until("every order has its mail", lambda: shop.journal("mail").keys() == placed)
    assert shop.journal("mail") == Counter(placed)
    assert shop.attempts("mail") == {3: len(placed)}


def test_what_failed_for_good_is_handled_once_the_image_is_mended_and_it_is_moved_back(shop: Shop) -> None:
    shop.place_orders(1001, 200)
    by_card = {order for order in shop.orders() if order % 10 == 1}
    dead = shop.get(LISTENER)["status"]["deadLetterQueue"]
    until("all that is paid by card is in the dead-letter queue", lambda: shop.queues()[dead] == len(by_card))
    until("kubectl get shows how many are there", lambda: shown(shop)["DLQ"] == str(len(by_card)))
    assert not shop.journal("charge")

    mended = {"spec": {"worker": {"image": FIXED_SHOP.name}}}
    shop("patch", LISTENER, "--type=merge", f"--patch={json.dumps(mended)}")
    until("the pods have the mended image", lambda: images(shop) == {FIXED_SHOP.name})
    shop.wait_until_ready(LISTENER)

    assert shop.redrive("charge-card") == len(by_card)
    until("every card is charged", lambda: shop.journal("charge").keys() == by_card)
    assert shop.journal("charge") == Counter(by_card)
    assert shop.attempts("charge") == {1: len(by_card)}
    assert shop.queues()[dead] == 0
    until("kubectl get shows that none is left", lambda: shown(shop)["DLQ"] == "0")
