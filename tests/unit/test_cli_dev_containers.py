from base64 import b64encode
from typing import Any

import pytest

from outbox_cli.dev.containers import ConfigError, Program, References, program_of, texts_of, texts_of_url
from outbox_operator.children.workload import Workload, worker_workload
from outbox_operator.resources import OutboxListener
from tests.operator.manifests import LISTENER, changed

OWN = "own"
BROKER = "amqp://shop:geheim@127.0.0.1/"


def workload(*variables: dict[str, Any], **changes: Any) -> Workload:
    worker = {"image": "shop:1", "template": {"env": list(variables)}}
    manifest = changed(LISTENER, {"handler": "shop.listeners:book", "worker": worker, **changes})
    listener = OutboxListener.model_validate(manifest)
    return worker_workload(listener, "outbox", "mails", secret_name=OWN, has_ca=False, replicas=1)


def references(**secrets: dict[str, str]) -> References:
    own = {"broker-uri": BROKER}
    return References({OWN: own, **secrets}, {"settings": {"colour": "red"}})


def environment(*variables: dict[str, Any], **secrets: dict[str, str]) -> dict[str, str]:
    program = program_of(workload(*variables), references(**secrets))
    assert program is not None
    return dict(program.environment)


def test_a_worker_is_run_as_its_container_would_be() -> None:
    program = program_of(workload(), references())
    assert program == Program(
        ("-m", "outbox_worker", "shop.listeners:book"),
        {
            "OUTBOX_EXCHANGE_NAME": "outbox",
            "OUTBOX_QUEUE": "mails",
            "OUTBOX_RETRY_DELAYS": "1,10,60,300",
            "OUTBOX_ORDERED": "false",
            "OUTBOX_PROVISIONED": "true",
            "OUTBOX_PREFETCH_COUNT": "10",
            "OUTBOX_SHUTDOWN_TIMEOUT": "30",
            "OUTBOX_PROBE_PORT": "8080",
            "OUTBOX_BROKER_URL": BROKER,
        },
        shutdown_seconds=30,
    )
    assert "geheim" not in repr(program)


def test_a_worker_of_another_language_is_not_known() -> None:
    listener = OutboxListener.model_validate(changed(LISTENER, {"worker": {"image": "shop:1"}}))
    made = worker_workload(listener, "outbox", "mails", secret_name=OWN, has_ca=False, replicas=1)
    assert program_of(made, references()) is None


def test_variables_come_from_values_secrets_and_config_maps() -> None:
    found = environment(
        {"name": "PLAIN", "value": "x"},
        {"name": "EMPTY"},
        {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "shop-db", "key": "uri"}}},
        {"name": "COLOUR", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "colour"}}},
        {"name": "NONE", "valueFrom": {"secretKeyRef": {"name": "nobody", "key": "x", "optional": True}}},
        **{"shop-db": {"uri": "postgresql://"}},
    )
    names = ("PLAIN", "EMPTY", "SECRET", "COLOUR", "NONE")
    assert [found.get(name) for name in names] == ["x", "", "postgresql://", "red", None]


@pytest.mark.parametrize(
    ("value", "meant"),
    [("$(A)-$(B)", "1-$(B)"), ("$$(A)", "$(A)"), ("$(A", "$(A"), ("5$", "5$"), ("$$$(A)", "$1")],
)
def test_a_value_refers_to_variables_before_it_as_in_kubernetes(value: str, meant: str) -> None:
    found = environment(
        {"name": "A", "value": "1"}, {"name": "C", "value": value}, {"name": "B", "value": "2"}
    )
    assert found["C"] == meant


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ({"secretKeyRef": {"name": "shop-db", "key": "uri"}}, 'there is no Secret "shop-db"; write it'),
        ({"secretKeyRef": {"name": "own", "key": "x"}}, 'Secret "own" has no key "x"; write it'),
        ({"configMapKeyRef": {"name": "x", "key": "y"}}, 'there is no ConfigMap "x"; write it'),
        (
            {"fieldRef": {"fieldPath": "spec.nodeName"}},
            "variable X comes from fieldRef, which only a cluster",
        ),
    ],
)
def test_what_is_not_there_is_named(source: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        environment({"name": "X", "valueFrom": source})


def test_a_secret_is_read_as_it_is_written() -> None:
    data = {"a": b64encode(b"1").decode(), "binary": b64encode(b"\xff").decode(), "broken": "?"}
    manifest = {"kind": "Secret", "data": data, "stringData": {"b": "2", "c": 3}}
    assert texts_of(manifest) == {"a": "1", "b": "2", "c": "3"}
    assert texts_of({"kind": "ConfigMap", "data": {"a": "1"}}) == {"a": "1"}
    assert texts_of({"kind": "Secret", "data": None}) == {}


def test_a_url_is_a_secret_with_all_the_keys_that_people_use() -> None:
    assert texts_of_url("postgresql://shop:a%2Fb@127.0.0.1:5433/orders") == {
        "uri": "postgresql://shop:a%2Fb@127.0.0.1:5433/orders",
        "host": "127.0.0.1",
        "port": "5433",
        "username": "shop",
        "user": "shop",
        "password": "a/b",
        "database": "orders",
        "dbname": "orders",
        "vhost": "orders",
    }


def test_a_url_with_several_hosts_is_a_secret_with_all_of_them() -> None:
    found = texts_of_url("amqp://shop:x@a:5672,[::1]:5672/v")
    assert (found["host"], found["port"], found["username"]) == ("a,::1", "5672", "shop")
