from pathlib import Path
from typing import Any

import pytest
import yaml

from outbox_cli.dev.manifests import Manifests, read
from tests.operator.manifests import LISTENER, RELAY, changed

A, B = Path("a.yaml"), Path("b.yaml")
SHOP = Path(__file__).parents[2] / "examples" / "shop"


def files(*documents: Any) -> dict[Path, str]:
    return {A: yaml.safe_dump_all(documents)}


def test_the_example_is_read_without_what_is_not_ours() -> None:
    texts = {path: path.read_text() for path in sorted(SHOP.rglob("*.yaml"))}
    found = read(texts, "shop")
    assert found.complaints == ()
    assert [relay.metadata.path for relay in found.relays] == ["shop/shop"]
    assert [listener.metadata.path for listener in found.listeners] == [
        "shop/book",
        "shop/send-mail",
        "shop/charge-card",
        "shop/remind",
    ]
    assert set(found.references.secrets) == {"shop-db", "shop-rabbitmq"}


def test_a_list_is_as_good_as_its_items() -> None:
    found = read(files({"kind": "List", "apiVersion": "v1", "items": [RELAY, LISTENER, None]}), "default")
    assert (len(found.relays), len(found.listeners)) == (1, 1)


def test_what_is_null_is_left_out_and_what_a_cluster_notes_is_not_read() -> None:
    noted = {
        ".metadata.uid": "x",
        ".metadata.creationTimestamp": None,
        ".metadata.namespace": None,
        ".status": {"backlog": 1},
        "replicas": None,
    }
    [relay] = read(files(changed(RELAY, noted)), "default").relays
    assert (relay.metadata.uid, relay.spec.replicas) == ("", 1)


@pytest.mark.parametrize(
    ("texts", "complaint"),
    [
        ({A: "apiVersion: outbox.dev/v1alpha1\nkind: [\n"}, "a.yaml:3: not YAML: "),
        (
            files(LISTENER, LISTENER),
            'a.yaml:14: OutboxListener "send-welcome-mail": metadata.name: another manifest has this name',
        ),
        (
            files(changed(LISTENER, {".metadata.namespace": "shop"})),
            'a.yaml:5: OutboxListener "send-welcome-mail": metadata.namespace: is "shop", and this command '
            'is for "default"; pass --namespace=shop, or change it',
        ),
        (
            files(RELAY, changed(RELAY, {".metadata.name": "other"})),
            'OutboxRelay "shop" and "other" both have table outbox_table, and there is one database for all',
        ),
        (
            files(changed(RELAY, {"replica": 2})),
            'a.yaml:12: OutboxRelay "shop": spec.replica: unknown field; did you mean replicas?',
        ),
        (files({**LISTENER, "metadata": "x"}), 'a.yaml:3: OutboxListener "": metadata: must be an object'),
        (files({"apiVersion": "outbox.dev/v1alpha1"}), 'a.yaml:1: resource "": kind: must be OutboxRelay or'),
    ],
)
def test_a_mistake_is_reported_with_its_line_and_resource(texts: dict[Path, str], complaint: str) -> None:
    [line] = read(texts, "default").complaints
    assert line.startswith(complaint)


def test_the_same_mistake_in_three_documents_is_three_lines_that_differ() -> None:
    typos = [changed(LISTENER, {".metadata.name": name, "bindingKey": "a"}) for name in "abc"]
    found = read(files({"kind": "List", "apiVersion": "v1", "items": typos}), "default").complaints
    assert [line.partition(": spec")[0] for line in found] == [
        'a.yaml:8: OutboxListener "a"',
        'a.yaml:18: OutboxListener "b"',
        'a.yaml:28: OutboxListener "c"',
    ]


def test_files_of_others_may_be_anything() -> None:
    texts = {A: "{{ if .Values.x }}\n- [", B: "just a text"}
    assert read(texts, "default") == Manifests()


def test_a_date_is_a_text_as_to_kubectl() -> None:
    text = yaml.safe_dump(changed(LISTENER, {"queue": "DATE"})).replace("DATE", "2026-11-16")
    [listener] = read({A: text}, "default").listeners
    assert listener.spec.queue == "2026-11-16"


def test_a_key_is_a_text_as_to_kubectl() -> None:
    text = yaml.safe_dump(changed(LISTENER, {".metadata.labels": {1: "a", False: "b"}}))
    [listener] = read({A: text}, "default").listeners
    assert listener.metadata.labels == {"1": "a", "false": "b"}


def test_what_may_not_be_changed_is_compared_with_what_was() -> None:
    before = read(files(RELAY, LISTENER), "default")
    after = read(files(changed(RELAY, {"exchange": "other"}), LISTENER), "default", before)
    [line] = after.complaints
    assert line.startswith('a.yaml:12: OutboxRelay "shop": spec.exchange: exchange cannot be changed')
    assert read(files(changed(RELAY, {"replicas": 3})), "default", before).complaints == ()
