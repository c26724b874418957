"""An operator that is taken away, and one that comes back."""

from tests.e2e.installation import Installation
from tests.e2e.kubectl import Kubectl, until
from tests.e2e.ledger import Ledger
from tests.e2e.shop import Shop

DEFINITIONS = ("outboxrelays.outbox.dev", "outboxlisteners.outbox.dev")


def test_without_an_operator_messages_go_on_and_the_next_one_takes_over_what_there_is(
    shop: Shop, installation: Installation, kubectl: Kubectl
) -> None:
    before, resources = shop.workloads(), named(shop)
    definitions = {name: uid(kubectl, name) for name in DEFINITIONS}
    assert len(resources) == 5
    try:
        installation.uninstall()
        assert not installation.is_installed()
        assert installation.pods() == []
        assert named(shop) == resources
        shop.place_orders(1, 100)
        assert len(Ledger(shop, 1).settle().placed) == 50
        assert shop.workloads() == before
    finally:
        installation.install()

    until("an operator leads", lambda: installation.leader() in names(installation))
    shop.wait_until_looked_at()
    shop.wait_until_ready()
    assert shop.workloads() == before
    assert named(shop) == resources
    assert {name: uid(kubectl, name) for name in DEFINITIONS} == definitions
    assert "Phase:          Succeeded" in installation.test()
    shop.place_orders(100_001, 100)
    assert len(Ledger(shop, 100_001).settle().placed) == 50


def named(shop: Shop) -> dict[str, str]:
    """All relays and listeners, with what tells each from another of its name."""
    items = shop.get("obr,obl")["items"]
    return {f"{each['kind']} {each['metadata']['name']}": each["metadata"]["uid"] for each in items}


def names(installation: Installation) -> set[str]:
    return {pod["metadata"]["name"] for pod in installation.pods()}


def uid(kubectl: Kubectl, definition: str) -> str:
    return str(kubectl.get("crd", definition)["metadata"]["uid"])
