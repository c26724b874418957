"""`kubectl outbox status`: relays and listeners of a real API server, and the servers that they lead to."""

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from outbox.topology import Subscription
from tests.hostile import ALL, escaped
from tests.integration.commanding import QUEUE, Told, kubectl_outbox, letter, shop_at
from tests.integration.credential_collector import collector
from tests.integration.relaying import until
from tests.operator.control_plane.api import Manifest
from tests.operator.control_plane.identity import identity, rule
from tests.operator.site import Site
from tests.operator.unchecked import store_unchecked

NOW = "2026-01-01T00:00:00Z"
SUBSCRIPTION = Subscription(QUEUE, ("user.*",), (timedelta(seconds=1),))


def conditions(**problems: str) -> list[Manifest]:
    """Those of a resource that is ready, but for the problems by their type."""
    ready = "False" if problems else "True"
    found = [{"type": "Ready", "status": ready, "reason": next(iter(problems), "Ready"), "message": ""}]
    found += [
        {"type": name, "status": "False", "reason": "Unreachable", "message": message}
        for name, message in problems.items()
    ]
    return [{**each, "lastTransitionTime": NOW, "observedGeneration": 1} for each in found]


def tell(site: Site, manifest: Manifest, **status: Any) -> None:
    """Write what the operator would."""
    made = site.get(manifest)
    site.api.replace({**made, "status": {"observedGeneration": 1, **status}}, "/status")


@pytest.fixture
def shop(site: Site) -> Site:
    """A relay and a listener that are ready, with nobody who operates them."""
    site.make_secrets()
    for manifest in (
        relay := site.relay(exchange="shop"),
        listener := site.listener(queue=QUEUE, retryDelays=["1s"]),
    ):
        site.api.create(manifest)
    tell(site, relay, conditions=conditions(), backlog=0, parked=0, readyReplicas=0)
    tell(site, listener, conditions=conditions(), queue=QUEUE, backlog=5, deadLetters=6)
    return site


async def status(site: Site, *arguments: str) -> Told:
    kubeconfig = str(site.api.control_plane.kubeconfig)
    arguments = ("status", *(arguments or ("-n", site.namespace)))
    return await asyncio.to_thread(kubectl_outbox, *arguments, KUBECONFIG=kubeconfig)


async def make_table(site: Site) -> None:
    kubeconfig = str(site.api.control_plane.kubeconfig)
    made = await asyncio.to_thread(
        kubectl_outbox, "schema", "create", "-n", site.namespace, KUBECONFIG=kubeconfig
    )
    assert made.status == 0


async def test_servers_that_can_be_reached_are_looked_at_as_they_are_now(shop: Site) -> None:
    await make_table(shop)
    async with shop_at(shop.rabbitmq_url, SUBSCRIPTION) as queues:
        await queues.fill(letter(1, ValueError("x")))
        consumer = await queues.broker.consumer(QUEUE, 1, lambda _: None)

        async def is_known() -> bool:
            return await queues.consumers(QUEUE) == 1

        await until(is_known, "the consumer")
        told = await status(shop)
        await consumer.aclose()
    width = len(shop.namespace) + len("/shop")
    assert told == Told(
        2,
        f"{'RELAY':<{width}}   READY   REASON   PODS   TABLE            PENDING   DELAYED   OLDEST   PARKED\n"
        f'{shop.namespace}/shop   True    Ready    0/0    "outbox_table"   0         0                  0\n'
        "\n"
        f"{'LISTENER':<{width}}   READY   REASON   PODS   QUEUE       WAITING   CONSUMERS   DLQ\n"
        f"{shop.namespace}/mail   True    Ready           shop.mail   0         1           1\n"
        "\n"
        "DELAY TIER      WAITING\n"
        "shop.delay_1s   0\n"
        "\n"
        "What looks wrong:\n"
        f"- OutboxListener {shop.namespace}/mail: 1 dead letter; "
        f"see `kubectl outbox dlq list mail -n {shop.namespace}`, and then `dlq redrive`\n",
        "",
    )


async def test_where_servers_cannot_be_reached_the_operators_numbers_are_shown(shop: Site) -> None:
    shop.change_secret("shop-db", uri="postgresql://app:geheim@db:5432/shop")
    shop.change_secret("shop-rabbitmq", uri="amqp://app:geheim@rabbitmq:5672/")
    tell(
        shop,
        shop.relay(),
        conditions=conditions(DatabaseReady="Postgres db: no answer; see that it runs"),
        backlog=2,
        parked=1,
    )
    told = await status(shop, "-n", shop.namespace, "-o", "json")
    said = json.loads(told.output)
    assert told.status == 2
    [relay], [listener] = said["relays"], said["queues"]
    assert (relay["table"]["pending"], relay["table"]["parked"], relay["table"]["delayed"]) == (2, 1, None)
    assert (listener["waiting"], listener["dead_letters"], listener["consumers"]) == (5, 6, None)
    assert [each["problem"] for each in said["findings"]] == [
        "Unreachable: Postgres db: no answer; see that it runs",
        "1 message is parked",
        "6 dead letters",
    ]
    path = f"outbox: OutboxRelay {shop.namespace}/shop"
    table, queues = told.errors.splitlines()
    assert table.startswith(f"{path}: its table is shown as the operator last saw it, since the database of")
    assert queues.startswith(f"{path}: its queues are shown as the operator last saw them, since the broker")
    assert "geheim" not in told.output + told.errors


async def test_a_resource_that_nobody_has_looked_at_says_that_the_operator_is_missing(site: Site) -> None:
    site.make_secrets()
    site.api.create(site.relay())
    await make_table(site)
    told = await status(site)
    assert told.status == 2
    assert told.output.endswith(
        "What looks wrong:\n"
        f"- OutboxRelay {site.namespace}/shop: the operator has not looked at it since it was changed; "
        "see that the operator runs: `kubectl get pods -A -l app.kubernetes.io/name=outbox-operator`\n"
    )


async def test_all_namespaces_are_shown_to_somebody_who_may_read_no_secret(
    shop: Site, tmp_path: Path
) -> None:
    reading = [rule("outbox.dev", "outboxrelays outboxlisteners", "list")]
    somebody = identity(shop.api, shop.namespace, tmp_path, {}, reading)
    told = await asyncio.to_thread(
        kubectl_outbox, "status", "-A", "-o", "json", KUBECONFIG=str(somebody.kubeconfig)
    )
    assert told.output, told.errors
    resources = [each["resource"] for each in json.loads(told.output)["queues"]]
    assert (shop.namespace, "mail") in [(each["namespace"], each["name"]) for each in resources]
    assert f"Secret {shop.namespace}/shop-db: you may not get secrets" in told.errors


async def test_a_resource_that_cannot_be_read_hides_no_other(shop: Site) -> None:
    other = shop.listener("other", queue="other")
    shop.api.create(other)
    store_unchecked(shop, other, ordered="perhaps")
    told = await status(shop)
    assert told.status == 1
    assert QUEUE in told.output
    assert f"outbox: OutboxListener {shop.namespace}/other: spec.ordered: " in told.errors


async def test_an_empty_namespace_has_nothing_wrong(site: Site) -> None:
    assert await status(site) == Told(0, "there is nothing here\n", "")


@pytest.mark.parametrize(
    "words",
    [
        ("status", "-A"),
        ("status", "-n", "{}"),
        ("status", "-n", "{}", "--database-url", "postgresql://127.0.0.1:{}"),
        ("messages", "list", "-n", "{}"),
        ("messages", "retry", "1", "-n", "{}"),
        ("schema", "check", "-n", "{}"),
        ("schema", "create", "-n", "{}"),
        ("emit", "user.created", "{{}}", "-n", "{}"),
    ],
    ids=" ".join,
)
async def test_no_credentials_of_whoever_runs_a_command_reach_a_server_of_a_tenant(
    shop: Site, tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / ".pgpass").write_text("*:*:*:*:geheim\n")
    (tmp_path / ".pgpass").chmod(0o600)
    ambient = {"PGPASSWORD": "geheim", "HOME": str(tmp_path), "PGDATABASE": "geheim"}
    async with collector() as server:
        shop.change_secret("shop-db", uri=f"postgresql://x@127.0.0.1:{server.port}/db")
        arguments = [word.format(server.port if "//" in word else shop.namespace) for word in words]
        kubeconfig = str(shop.api.control_plane.kubeconfig)
        await asyncio.to_thread(kubectl_outbox, *arguments, KUBECONFIG=kubeconfig, **ambient)
    assert server.secrets == [b""]
    assert "geheim" not in str(server.startups)


@pytest.mark.parametrize("output", ["table", "json"])
async def test_what_a_condition_says_is_shown_without_effect_on_the_terminal(shop: Site, output: str) -> None:
    words = ALL.encode(errors="ignore").decode()
    tell(shop, shop.relay(), conditions=conditions(DatabaseReady=words))
    shop.change_secret("shop-db", uri="postgresql://app:geheim@nowhere.invalid:5432/shop")
    told = await status(shop, "-n", shop.namespace, "-o", output)
    assert escaped(told.output + told.errors)
    assert "u202e" in told.output
