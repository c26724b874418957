"""kill -9 of everything there is, while orders come in."""

from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.e2e.installation import Installation
from tests.e2e.kubectl import Kubectl, Manifest, until
from tests.e2e.ledger import orders_from
from tests.e2e.node import Node
from tests.e2e.node import node as on_the_node
from tests.e2e.replacement import replaced
from tests.e2e.shop import Shop, open_shop
from tests.images.catalogue import FIXED_SHOP

VICTIMS = ("relays", "workers", "operators", "rabbitmq", "postgres")
_BOOKED = """
    SELECT (convert_from(body, 'UTF8')::json ->> 'id')::bigint AS id, count(*)
    FROM outbox_table WHERE routing_key = 'order.booked' GROUP BY 1
"""


@pytest.fixture(scope="module")
def node(kubectl: Kubectl, installation: Installation) -> Iterator[Node]:
    """The hand that kills."""
    with on_the_node(kubectl) as found:
        yield found


@pytest.fixture(scope="module")
def shop(kubectl: Kubectl, installation: Installation) -> Iterator[Shop]:
    """A shop whose relay keeps what it has sent, so that it can be counted, and whose mails are tried again
    for longer than a database is away: the first two attempts fail in any case."""
    changes: dict[str, Manifest] = {
        "obr/shop": {"retention": {"sent": "1h"}},
        "obl/send-mail": {"retryDelays": ["1s", "2s", "5s", "10s", "30s"]},
    }
    with open_shop(kubectl, changes=changes) as opened:
        yield opened


def pods_of(victims: str, shop: Shop, installation: Installation) -> list[Manifest]:
    match victims:
        case "operators":
            return installation.pods()
        case "relays":
            return shop.pods("obr/shop")
        case "workers":
            return [pod for name in shop("get", "obl", "--output=name").split() for pod in shop.pods(name)]
        case service:
            return [shop.get("pod", f"{service}-0")]


@pytest.mark.parametrize("victims", VICTIMS)
def test_nothing_is_lost_by_a_kill_of(
    victims: str, shop: Shop, installation: Installation, node: Node, progress: Callable[[str], None]
) -> None:
    first = VICTIMS.index(victims) * 100_000 + 1
    with orders_from(shop, first) as ledger:
        node.kill(pods_of(victims, shop, installation))
        shop.wait_until_looked_at()
        ledger.wait_until_it_goes_on()
    account = ledger.settle()
    progress(f"kill -9 of the {victims}: {account}")
    # By the key of its table no order is booked twice; and what goes with a booking went once, too.
    counts = Counter({row["id"]: row["count"] for row in shop.rows(_BOOKED)})
    assert counts == Counter(shop.orders())


def test_no_dead_letter_is_lost_either(shop: Shop, progress: Callable[[str], None]) -> None:
    by_card = {order for order in shop.orders() if order % 10 == 1}
    with replaced(shop, "obl/charge-card"):
        shop.patch("obl/charge-card", worker={"image": FIXED_SHOP.name})
    moved = shop.redrive("charge-card")
    until("every card is charged", lambda: shop.journal("charge").keys() == by_card)
    progress(f"{len(by_card):,} dead letters, none lost, {moved - len(by_card)} repeated")
