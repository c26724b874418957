"""What the operator keeps as it should be, while people turn every knob."""

import json
from collections.abc import Callable

import pytest

from tests.e2e.broker import Contents, contents, remove
from tests.e2e.kubectl import until
from tests.e2e.ledger import Ledger, orders_from
from tests.e2e.replacement import replaced
from tests.e2e.shop import Shop

EXCHANGE = "outbox"
TIER = f"{EXCHANGE}.delay_2s"


@pytest.fixture(scope="module")
def whole(shop: Shop) -> Contents:
    """The broker as the operator made it."""
    return contents(shop)


def is_as(shop: Shop, expected: Contents) -> bool:
    return contents(shop) == expected


def replicas(shop: Shop, deployment: str) -> int:
    return int(shop.get("deployment", deployment)["spec"]["replicas"])


def ready_pods(shop: Shop, resource: str, count: int) -> set[str]:
    """Wait until it has so many that are ready; their uids."""
    until(
        f"{resource} has {count} ready pods, and says so",
        lambda: len(shop.pods(resource)) == shop.get(resource)["status"].get("readyReplicas", 0) == count,
    )
    return {pod["metadata"]["uid"] for pod in shop.pods(resource)}


def test_what_somebody_removes_from_the_broker_is_back(shop: Shop, whole: Contents) -> None:
    remind, mail = shop.queue("remind"), shop.queue("send-mail")
    remove(
        shop,
        queues=[remind, f"{mail}.dlq", TIER],
        exchanges=[EXCHANGE, f"{EXCHANGE}.dlx"],
        bindings=[whole.binding_of(mail)],
    )
    [user] = whole.users_of("listener", "charge-card")
    shop.rabbitmqctl("delete_user", user)
    until("the broker is as it was", lambda: is_as(shop, whole))
    shop.wait_until_ready()
    shop.place_orders(1, 40)
    assert len(Ledger(shop, 1).settle().placed) == 20


def test_a_paused_resource_is_left_alone_until_it_is_not_paused_any_more(shop: Shop, whole: Contents) -> None:
    shop.patch("obl/remind", paused=True)
    until("it is paused", lambda: shop.condition("obl/remind", "Paused").get("status") == "True")
    lost, other = (whole.binding_of(shop.queue(name)) for name in ("remind", "send-mail"))
    remove(shop, bindings=[lost, other])
    assert lost not in contents(shop).bindings
    for deployment in ("remind-worker", "send-mail-worker"):
        shop("scale", "deployment", deployment, "--replicas=0")

    until("what was done to another listener is undone", lambda: other in contents(shop).bindings)
    until("and its workers are back", lambda: replicas(shop, "send-mail-worker") == 2)
    assert whole.bindings - contents(shop).bindings == {lost}
    assert replicas(shop, "remind-worker") == 0

    shop.patch("obl/remind", paused=False)
    until("the broker is as it was", lambda: is_as(shop, whole))
    until("its worker is back", lambda: replicas(shop, "remind-worker") == 1)
    shop.wait_until_ready()


@pytest.mark.parametrize(("resource", "before"), [("obr/shop", 2), ("obl/send-mail", 2)])
def test_kubectl_scale_adds_pods_and_takes_them_away(shop: Shop, resource: str, before: int) -> None:
    pods = ready_pods(shop, resource, before)
    shop("scale", resource, "--replicas=3")
    assert ready_pods(shop, resource, 3) > pods
    shop("scale", resource, f"--replicas={before}")
    ready_pods(shop, resource, before)


def test_messages_wait_for_workers_that_are_scaled_away(shop: Shop) -> None:
    shop("scale", "obl/remind", "--replicas=0")
    ready_pods(shop, "obl/remind", 0)
    shop.place_orders(1_001, 40)
    until("messages wait", lambda: shop.queues()[shop.queue("remind")] == 20)
    shop("scale", "obl/remind", "--replicas=1")
    assert len(Ledger(shop, 1_001).settle().placed) == 20


def test_all_credentials_are_replaced_while_orders_come_in(
    shop: Shop, whole: Contents, progress: Callable[[str], None]
) -> None:
    make_administrators(shop)
    with orders_from(shop, 100_001) as ledger:
        change_secrets(shop)
        until("relays use the new role of the database", lambda: roles_of_relays(shop) == {"renewed"})
        shop.rabbitmqctl("delete_user", "shop")
        # New users cannot be made but by the new administrator.
        with replaced(shop, *shop("get", "obr,obl", "--output=name").split()):
            for kind in ("obr", "obl"):
                shop("annotate", kind, "--all", "outbox.dev/rotate=once")
        until("all pods have new users, and the old ones are gone", lambda: are_renewed(shop, whole))
        ledger.wait_until_it_goes_on()
    account = ledger.settle()
    progress(f"rotation: {account}")
    assert not any(account.repeated.values())
    shop.wait_until_ready()


def make_administrators(shop: Shop) -> None:
    """Other ones, of the broker and of the database."""
    shop.rabbitmqctl("add_user", "renewed", "another-secret")
    shop.rabbitmqctl("set_user_tags", "renewed", "administrator")
    shop.rabbitmqctl("set_permissions", "renewed", ".*", ".*", ".*")
    shop.psql("CREATE ROLE renewed SUPERUSER LOGIN PASSWORD 'another-secret'")


def change_secrets(shop: Shop) -> None:
    for name, uri in (
        ("shop-rabbitmq", "amqp://renewed:another-secret@rabbitmq:5672/"),
        ("shop-db", "postgresql://renewed:another-secret@postgres:5432/shop"),
    ):
        shop("patch", "secret", name, f"--patch={json.dumps({'stringData': {'uri': uri}})}")


def roles_of_relays(shop: Shop) -> set[str]:
    asked = "SELECT DISTINCT usename FROM pg_stat_activity WHERE application_name LIKE 'outbox-relay%'"
    return {row["usename"] for row in shop.rows(asked)}


def are_renewed(shop: Shop, whole: Contents) -> bool:
    """Whether there are as many users as before, and none of those, with the same rights."""
    old, new = whole.permissions, contents(shop).permissions
    return sorted(old.values()) == sorted(new.values()) and old.keys().isdisjoint(new)
