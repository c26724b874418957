"""`outbox topology`: what it prints is what a real broker needs."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
import yaml

from outbox.topology import subscription, topology
from outbox_cli.local import Services
from outbox_core.broker import Broker
from outbox_operator.broker.access import BrokerAccess
from outbox_operator.broker.management import Management
from outbox_operator.broker.snapshot import Snapshot
from outbox_operator.broker.topology_plan import TopologyPlan, topology_actions
from outbox_operator.resources import OutboxListener
from outbox_operator.subscriptions import subscription_of
from outbox_worker.loading import load
from outbox_worker.settings import Settings
from tests.integration.administrator import management
from tests.integration.commanding import Told, outbox, outbox_beside

SHOP = Path(__file__).parents[2] / "examples" / "shop"
MANIFESTS = SHOP / "manifests"
NOTHING = TopologyPlan((), ())


@pytest.fixture
def vhost(rabbitmq_url: str) -> str:
    return urlsplit(rabbitmq_url).path.removeprefix("/")


def import_definitions(services: Services, vhost: str, definitions: Any) -> None:
    management(services, "POST", f"definitions/{quote(vhost, safe='')}", definitions)


async def snapshot_of(services: Services, vhost: str) -> Snapshot:
    parts = urlsplit(services.rabbitmq.management_url)
    access = BrokerAccess(
        host=parts.hostname or "",
        port=0,
        tls=False,
        vhost=vhost,
        username=parts.username or "",
        password=parts.password or "",
        management_url=f"{parts.scheme}://{parts.hostname}:{parts.port}",
    )
    async with Management(access, on_call=lambda _method, _status: None) as api:
        return await api.snapshot()


def shop_listeners(namespace: str) -> list[OutboxListener]:
    documents = yaml.safe_load_all((MANIFESTS / "listeners.yaml").read_text())
    return [
        OutboxListener.model_validate({**each, "metadata": {**each["metadata"], "namespace": namespace}})
        for each in documents
    ]


async def test_the_operator_finds_nothing_to_do_after_an_import(services: Services, vhost: str) -> None:
    told = await outbox_beside("topology", "-f", str(MANIFESTS), "-n", "shop", "--format", "definitions")
    assert (told.status, told.errors) == (0, "")
    import_definitions(services, vhost, json.loads(told.output))
    snapshot = await snapshot_of(services, vhost)
    for listener in shop_listeners("shop"):
        wanted = topology("outbox", [subscription_of(listener)])
        assert topology_actions(wanted, listener.metadata.path, snapshot) == NOTHING
    assert sorted(snapshot.queues) == sorted(each["name"] for each in json.loads(told.output)["queues"])


async def test_a_worker_finds_what_was_imported_as_it_would_declare_it(
    services: Services, vhost: str, rabbitmq_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(SHOP)
    told = await outbox_beside("topology", "shop.listeners")
    assert (told.status, told.errors) == (0, "")
    import_definitions(services, vhost, json.loads(told.output))
    default = Settings().policy
    wanted = topology("outbox", [subscription(each, default) for each in load(["shop.listeners"])])
    async with Broker(rabbitmq_url, name="test") as broker:
        # As a worker that is told that somebody else declares, and as one that would refuse other arguments.
        await broker.check(wanted)
        await broker.declare(wanted)


def test_other_formats_say_the_same() -> None:
    from_files = ("topology", "-f", str(MANIFESTS), "-n", "shop", "--vhost", "v")
    definitions = json.loads(outbox(*from_files).output)
    manifests = list(yaml.safe_load_all(outbox(*from_files, "--format", "manifests").output))
    terraform = outbox(*from_files, "--format", "terraform").output
    for kind, plural in (("Exchange", "exchanges"), ("Queue", "queues")):
        names = [each["name"] for each in definitions[plural]]
        assert [each["spec"]["name"] for each in manifests if each["kind"] == kind] == names
        assert [name for name in names if f'  name  = "{name}"\n' not in terraform] == []
    assert len(definitions["bindings"]) == len([each for each in manifests if each["kind"] == "Binding"])
    assert terraform.count('resource "rabbitmq_binding"') == len(definitions["bindings"])
    assert {each["vhost"] for each in definitions["queues"]} == {"v"}


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ((), "name manifests with -f, or the modules of listeners, and not both"),
        (
            ("nowhere.listeners",),
            "nowhere.listeners: there is no module 'nowhere'; run from the folder that "
            "has it, or put that folder on PYTHONPATH",
        ),
        (("-f", "nowhere.yaml"), "nowhere.yaml does not exist; name a folder or a file that does"),
        (
            ("-f", str(MANIFESTS), "--relay", "other"),
            "the manifests have no OutboxRelay other; they have: shop",
        ),
        (
            ("-f", str(MANIFESTS / "listeners.yaml")),
            "the manifests have no OutboxRelay at all; they have: none",
        ),
    ],
)
def test_what_cannot_be_read_is_one_line_with_the_cure(arguments: tuple[str, ...], line: str) -> None:
    assert outbox("topology", *arguments) == Told(1, "", f"outbox: {line}\n")
