"""What the README says to type, typed; and what comes of it."""

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.e2e import readme
from tests.e2e.installation import Installation
from tests.e2e.kubectl import Kubectl, rows, until
from tests.e2e.namespaces import mark_namespace, new_name
from tests.e2e.shop import Shop

PLACED = set(range(1, 1001, 2))
"""Of a thousand orders every second one is rolled back."""
_COMMAND_SECONDS = 330


@pytest.fixture(scope="module")
def shop(kubectl: Kubectl, installation: Installation) -> Iterator[Shop]:
    """The shop after all commands of the README, in a namespace that enforces restricted pod security."""
    typed = Shop(kubectl, new_name("quickstart"))
    make, *rest = readme.commands("kubectl", typed.namespace)
    kubectl(*make)
    try:
        mark_namespace(kubectl, typed.namespace)
        for command in rest:
            kubectl(*command, seconds=_COMMAND_SECONDS)
        yield typed
    finally:
        kubectl("delete", "namespace", typed.namespace, "--wait=false")


def test_exactly_the_committed_orders_are_handled(shop: Shop) -> None:
    assert shop.orders() == PLACED
    until("every order is booked", lambda: shop.bookings() == PLACED)
    until("every order has its mail", lambda: shop.journal("mail").keys() == PLACED)
    until("every order has its reminder", lambda: shop.journal("reminder").keys() == PLACED)
    assert shop.journal("mail") == Counter(PLACED)
    assert shop.attempts("mail") == {3: len(PLACED)}
    assert shop.journal("reminder") == Counter(PLACED)
    until("the outbox is empty", lambda: shop.pending() == 0)


def test_kubectl_shows_what_the_readme_shows(kubectl: Kubectl, shop: Shop) -> None:
    *_, command = readme.commands("kubectl", shop.namespace)
    expected = steady(readme.shown(), "shop")
    assert len(expected) == 5
    # The broker is looked at every half a minute.
    until(f"kubectl shows {expected}", lambda: steady(kubectl(*command), shop.namespace) == expected)


def steady(shown: str, namespace: str) -> dict[str, dict[str, str]]:
    """The table without what is another with each run: ages, and the namespace in the names of queues."""
    return {
        name: {**cells, "AGE": "", "QUEUE": cells.get("QUEUE", "").removeprefix(namespace)}
        for name, cells in rows(shown).items()
    }
