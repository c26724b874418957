"""`kubectl outbox`: databases and brokers found through the resources of a real API server."""

import asyncio
import json
import sys
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest
import yaml

from outbox import schema
from tests.integration.commanding import QUEUE, Shop, Told, asked, kubectl_outbox, letter, outbox, shop_at
from tests.operator.control_plane.api import Api
from tests.operator.control_plane.identity import Rule, identity, rule
from tests.operator.site import Site

READING = rule("outbox.dev", "outboxrelays outboxlisteners", "get list")
ELSEWHERE = {
    "OUTBOX_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/x",
    "OUTBOX_BROKER_URL": "amqp://nobody@127.0.0.1:1",
}
"""What somebody may have set for another place."""


@pytest.fixture
def shop(site: Site) -> Site:
    """A relay and a listener with a queue of its own, and nobody who operates them."""
    site.make_secrets()
    site.api.create(site.relay(database={"secretRef": {"name": "shop-db"}, "table": "shop_messages"}))
    site.api.create(site.listener(queue=QUEUE))
    return site


def plugin(site: Site, *arguments: str, **environment: str) -> Told:
    kubeconfig = str(site.api.control_plane.kubeconfig)
    return kubectl_outbox(*arguments, "-n", site.namespace, **{"KUBECONFIG": kubeconfig, **environment})


async def dead_letters(queues: Shop, count: int) -> None:
    await queues.fill(*(letter(number, ValueError("no such user")) for number in range(count)))


async def test_dead_letters_are_redriven_by_the_name_of_their_listener(shop: Site) -> None:
    async with shop_at(shop.rabbitmq_url) as queues:
        await dead_letters(queues, 3)
        listed = await asyncio.to_thread(plugin, shop, "dlq", "list", "mail", "-o", "json", **ELSEWHERE)
        assert [(each["queue"], each["depth"]) for each in json.loads(listed.output)] == [(f"{QUEUE}.dlq", 3)]
        told = await asyncio.to_thread(plugin, shop, "dlq", "redrive", "mail", **ELSEWHERE)
        assert told == Told(0, f"{QUEUE}: 3 dead letters redriven\n", "")
        assert await queues.depths() == (3, 0)


async def test_a_url_that_is_typed_wins_and_gets_the_login_of_the_secret(shop: Site) -> None:
    parts = urlsplit(shop.rabbitmq_url)
    shop.change_secret(
        "shop-rabbitmq",
        uri=f"amqp://{parts.username}:{parts.password}@rabbitmq.shop.svc:5672{parts.path}",
    )
    refused = await asyncio.to_thread(plugin, shop, "dlq", "list", "mail")
    assert refused == Told(
        1,
        "",
        f"outbox: the broker of OutboxRelay {shop.namespace}/shop is the Service rabbitmq.shop.svc, which is "
        "known inside of the cluster only; run `kubectl port-forward --namespace shop service/rabbitmq "
        "5672:5672`, and add --broker-url amqp://localhost:5672\n",
    )
    async with shop_at(shop.rabbitmq_url):
        forwarded = f"amqp://{parts.hostname}:{parts.port}"
        told = await asyncio.to_thread(plugin, shop, "dlq", "list", "mail", "--broker-url", forwarded)
    assert (told.status, told.errors) == (0, "")


def test_the_table_is_that_of_the_only_relay(shop: Site) -> None:
    made = plugin(shop, "schema", "create", **ELSEWHERE)
    assert made == Told(0, 'table "shop_messages" is there, with its indexes and triggers\n', "")
    emitted = plugin(shop, "emit", "user.created", '{"id": 1}', **ELSEWHERE)
    assert (emitted.status, emitted.errors) == (0, "")
    listed = plugin(shop, "messages", "list", "-o", "json", **ELSEWHERE)
    assert [each["routing_key"] for each in json.loads(listed.output)] == ["user.created"]


async def test_a_purge_deletes_from_the_table_that_it_asked_about(shop: Site) -> None:
    tables = ("shop_messages", "other_messages")
    database = await asyncpg.connect(shop.postgres_url)
    for table in tables:
        await database.execute(schema.create_sql(table))
        await database.execute(f"INSERT INTO {table} (routing_key, body, parked_at) VALUES ('k', '1', now())")
    kubeconfig = str(shop.api.control_plane.kubeconfig)
    purge = ("messages", "purge", "-n", shop.namespace, "--kubeconfig", kubeconfig)
    async with asked(*purge) as answer:
        shop.edit(shop.relay(), database={"table": tables[1]})
        assert (await answer("y")).output == "1 message deleted\n"
    counts = [await database.fetchval(f"SELECT count(*) FROM {table}") for table in tables]
    assert counts == [0, 1]
    await database.close()


def test_the_plain_command_looks_there_too_where_a_namespace_is_named(shop: Site) -> None:
    kubeconfig = str(shop.api.control_plane.kubeconfig)
    arguments = ("schema", "check", "-n", shop.namespace, "--kubeconfig", kubeconfig)
    told = outbox(*arguments, **ELSEWHERE)
    assert told.output == 'table "shop_messages": it does not exist; run `outbox schema create`\n'
    named = outbox(*arguments, "--relay", "shop", "--context", "tests")
    assert named == told
    other = outbox(*arguments, "--table", "others", "--database-url", shop.postgres_url)
    assert other.output == 'table "others": it does not exist; run `outbox schema create`\n'


def test_without_a_namespace_it_is_that_of_the_context(shop: Site, tmp_path: Path) -> None:
    config = yaml.safe_load(shop.api.control_plane.kubeconfig.read_text())
    config["contexts"][0]["context"]["namespace"] = shop.namespace
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    told = kubectl_outbox("schema", "create", KUBECONFIG=str(tmp_path / "kubeconfig"))
    assert (told.status, told.errors) == (0, "")


def test_reading_three_kinds_is_all_that_it_takes(shop: Site, tmp_path: Path) -> None:
    somebody = identity(
        shop.api, shop.namespace, tmp_path, {shop.namespace: [READING, rule("", "secrets", "get")]}
    )
    told = plugin(shop, "schema", "create", KUBECONFIG=str(somebody.kubeconfig))
    assert (told.status, told.errors) == (0, "")


@pytest.mark.parametrize(
    ("rights", "line"),
    [
        (
            [],
            "OutboxRelays in {ns}: you may not list outboxrelays.outbox.dev in namespace {ns}; "
            "have that added to a Role of yours",
        ),
        (
            [READING],
            "Secret {ns}/shop-db: you may not get secrets in namespace {ns}; "
            "have that added to a Role of yours",
        ),
    ],
)
def test_a_right_that_is_missing_is_named(shop: Site, tmp_path: Path, rights: list[Rule], line: str) -> None:
    somebody = identity(shop.api, shop.namespace, tmp_path, {shop.namespace: rights})
    told = plugin(shop, "messages", "list", KUBECONFIG=str(somebody.kubeconfig))
    assert told == Told(1, "", f"outbox: {line.format(ns=shop.namespace)}\n")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ("messages", "list", "--relay", "other"),
            "namespace {ns} has no OutboxRelay other; it has: shop",
        ),
        (("dlq", "list", "post"), "namespace {ns} has no OutboxListener post; it has: mail"),
        (("dlq", "list", "mail", "--context", "x"), "the kubeconfig has no context x; it has: tests"),
    ],
)
def test_what_is_not_there_names_what_is(shop: Site, arguments: tuple[str, ...], line: str) -> None:
    assert plugin(shop, *arguments) == Told(1, "", f"outbox: {line.format(ns=shop.namespace)}\n")


def test_a_namespace_without_a_relay_or_with_several_says_so(site: Site) -> None:
    none = plugin(site, "messages", "list")
    assert none.errors == (
        f"outbox: namespace {site.namespace} has no OutboxRelay; name another namespace with -n\n"
    )
    site.api.create(site.relay("one"))
    site.api.create(site.relay("two"))
    several = plugin(site, "messages", "list")
    assert several == Told(
        1,
        "",
        f"outbox: namespace {site.namespace} has several OutboxRelays; name one with --relay: one, two\n",
    )


def test_a_secret_that_is_missing_or_says_too_little_is_named(site: Site) -> None:
    site.api.create(site.relay())
    missing = plugin(site, "messages", "list")
    where = f'"shop-db" does not exist in namespace "{site.namespace}"; create it with: '
    assert missing.errors.startswith(f"outbox: OutboxRelay {site.namespace}/shop: Secret {where}")
    site.make_secret("shop-db", host="db", password="geheim")  # noqa: S106 - of nobody
    little = plugin(site, "messages", "list")
    assert little.status == 1
    assert little.errors.startswith(f"outbox: OutboxRelay {site.namespace}/shop: Secret ")
    assert "it has host, password; add uri" in little.errors
    assert (little.errors.count("\n"), "geheim" in little.errors) == (1, False)


def test_a_relay_with_the_operators_administrator_needs_a_broker_url_of_ones_own(site: Site) -> None:
    relay = site.relay(broker={"administratorSecretRef": {"name": "rabbitmq-admin"}, "vhost": site.vhost})
    site.api.create(relay)
    site.api.create(site.listener())
    told = plugin(site, "dlq", "list", "mail")
    assert told == Told(
        1,
        "",
        f"outbox: OutboxRelay {site.namespace}/shop has no credentials for its broker but the operator's; "
        "add --broker-url with a user and password of your own\n",
    )
    own = plugin(site, "dlq", "list", "mail", "--broker-url", site.rabbitmq_url)
    assert "its broker but the operator's" not in own.errors


def test_a_cluster_that_cannot_be_reached_is_one_line(api: Api, tmp_path: Path) -> None:
    config = yaml.safe_load(api.control_plane.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    told = kubectl_outbox("status", KUBECONFIG=str(tmp_path / "kubeconfig"))
    assert told.status == 1
    assert told.errors.startswith("outbox: OutboxRelays in default: the API server cannot be reached: ")
    assert told.errors.count("\n") == 1
    file = tmp_path / "nowhere"
    nowhere = kubectl_outbox("status", "--kubeconfig", str(file))
    assert nowhere.errors.startswith(f"outbox: there is no way to a cluster (KUBECONFIG={file}): ")
    assert nowhere.errors.endswith("; set KUBECONFIG, or --kubeconfig, to a file that kubectl works with\n")


def test_kubectl_finds_the_plugin(shop: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As pip writes it.
    script = tmp_path / "kubectl-outbox"
    script.write_text(f"#!{sys.executable}\nfrom outbox_cli.__main__ import main\nmain()\n")
    script.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    done = shop.api.kubectl("outbox", "schema", "create", "-n", shop.namespace)
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        'table "shop_messages" is there, with its indexes and triggers\n',
        "",
    )
    helped = shop.api.kubectl("outbox", "schema", "create", "-h")
    assert "Usage: kubectl outbox schema create" in helped.stdout
