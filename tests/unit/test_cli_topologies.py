"""What the broker needs, in the words of those who make it without the operator."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from outbox.topology import Subscription, Topology, topology
from outbox_cli.topologies.definitions import definitions
from outbox_cli.topologies.labels import labels
from outbox_cli.topologies.messaging import messaging
from outbox_cli.topologies.provision import Provision
from outbox_cli.topologies.terraform import terraform

GOLDEN = Path(__file__).parent / "golden_topologies"

PROVISION = Provision(
    "shop",
    topology("outbox", [Subscription("shop.mail", ("user.created",), (), ordered=True)]),
    {"shop.mail": "shop/mail", "shop.mail.dlq": "shop/mail"},
)


def test_a_terraform_file_is_as_it_was_agreed() -> None:
    assert terraform(PROVISION) == (GOLDEN / "mail.tf").read_text()


def test_the_resources_of_the_topology_operator_are_as_they_were_agreed() -> None:
    assert messaging(PROVISION, "rabbitmq", "shop") == json.loads((GOLDEN / "mail.json").read_text())


def read_terraform(text: str) -> dict[tuple[str, str], dict[str, Any]]:
    """The resources of a file by type and label, with their settings: as much of HCL as is written here."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for kind, label, body in re.findall(r'^resource "(\w+)" "([\w-]+)" {\n(.*?)^}\n', text, re.M | re.S):
        values = {
            name: value for name, value in re.findall(r'^\s+(?:"([^"]+)"|\w+)\s+= (.+)$', body, re.M) if name
        }
        settings = dict(re.findall(r"^\s+(\w+)\s+= (?!jsonencode)(.+)$", body, re.M))
        assert (kind, label) not in found, "a label is there twice"
        found[kind, label] = {
            **{name: _read(value) for name, value in settings.items()},
            "arguments": {name: _read(value) for name, value in values.items()},
        }
    return found


def _read(value: str) -> Any:
    if reference := re.fullmatch(r"(rabbitmq_\w+)\.([\w-]+)\.name", value):
        return reference.groups()
    return json.loads(value.replace("$${", "${").replace("%%{", "%{"))


ODD = 'a "quoted" \\ ${key} %{if} ünïcode'


def odd_topology() -> Topology:
    delays = Subscription("a b", (ODD, "#"), ())
    return topology("my exchange", [delays, Subscription("a.b", ("*",), ()), Subscription("a_b", ("*",), ())])


def test_a_terraform_file_names_everything_once_whatever_it_is_called() -> None:
    wanted = odd_topology()
    resources = read_terraform(terraform(Provision("/", wanted)))
    queues = {key: each for key, each in resources.items() if key[0] == "rabbitmq_queue"}
    assert {each["name"]: each["arguments"] for each in queues.values()} == {
        each.name: each.arguments for each in wanted.queues
    }
    exchanges = [each for key, each in resources.items() if key[0] == "rabbitmq_exchange"]
    assert {(each["name"], each["type"]) for each in exchanges} == {
        (each.name, each.kind) for each in wanted.exchanges
    }
    bindings = [each for key, each in resources.items() if key[0] == "rabbitmq_binding"]
    assert {
        (resources[each["source"]]["name"], resources[each["destination"]]["name"], each["routing_key"])
        for each in bindings
    } == {(each.exchange, each.queue, each.routing_key) for each in wanted.bindings}


def test_names_of_resources_are_those_that_kubernetes_takes() -> None:
    manifests = messaging(Provision("/", odd_topology()), "rabbitmq", None)
    names = [(each["kind"], each["metadata"]["name"]) for each in manifests]
    assert len(names) == len(set(names))
    for _, name in names:
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", name), name


def test_bindings_of_resources_have_the_mark_of_their_owner() -> None:
    arguments = [each["arguments"] for each in definitions(PROVISION)["bindings"]]
    assert arguments == [{"outbox.dev/owner": "shop/mail"}] * 2
    without = Provision("shop", PROVISION.topology)
    assert [each["arguments"] for each in definitions(without)["bindings"]] == [{}, {}]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["a", "b"], {"a": "A", "b": "B"}),
        (["a", "A", "a-2"], {"a": "A", "A": "A-2", "a-2": "A-2-2"}),
    ],
)
def test_labels_that_come_out_the_same_are_counted(names: list[str], expected: dict[str, str]) -> None:
    assert labels(names, str.upper) == expected
