import base64
from typing import Any

import pytest

from outbox_operator.children.family import Children, Facilities, children, no_children
from outbox_operator.children.manifest import Manifest
from outbox_operator.children.pod_secret import secret_data, secret_manifest
from outbox_operator.children.workload import relay_workload, worker_workload
from outbox_operator.resources import OutboxListener, OutboxRelay
from outbox_operator.subscriptions import queue_of
from tests.operator.manifests import LISTENER, RELAY, changed

_SECRET = "shop-1"  # noqa: S105 - the name of one
_ALL = Facilities(pod_monitors=True, keda=True, network_policies=True)
_WORKER: dict[str, Any] = {"handler": "shop.listeners:on_user", "worker.image": "shop:1"}
_SCALED = {**_WORKER, "worker.autoscaling": {"min": 0, "max": 5, "backlogPerReplica": 50}}


def _of_relay(facilities: Facilities = Facilities(), **changes: Any) -> Children:  # noqa: B008 - frozen
    relay = OutboxRelay.model_validate(changed(RELAY, changes))
    return children(relay_workload(relay, image="relay:1", secret_name=_SECRET, has_ca=False), facilities)


def _of_listener(
    changes: dict[str, Any],
    facilities: Facilities = Facilities(),  # noqa: B008 - frozen
    *,
    has_ca: bool = False,
) -> Children:
    listener = OutboxListener.model_validate(changed(LISTENER, changes))
    is_scaled = "worker.autoscaling" in changes and facilities.keda
    workload = worker_workload(
        listener,
        "outbox",
        queue_of(listener),
        secret_name=_SECRET,
        has_ca=has_ca,
        replicas=None if is_scaled else 1,
    )
    return children(workload, facilities)


def _kinds(found: Children) -> tuple[list[str], list[str]]:
    return [manifest["kind"] for manifest in found.wanted], [kind for kind, _ in found.unwanted]


def _the(kind: str, found: Children) -> Manifest:
    [manifest] = [manifest for manifest in found.wanted if manifest["kind"] == kind]
    return manifest


def test_a_short_relay_has_a_deployment_alone() -> None:
    wanted, unwanted = _kinds(_of_relay())
    assert wanted == ["Deployment"]
    assert unwanted == ["PodDisruptionBudget", "NetworkPolicy"]


def test_several_replicas_have_a_budget_until_they_are_one_again() -> None:
    assert _kinds(_of_relay(replicas=2)) == (["Deployment", "PodDisruptionBudget"], ["NetworkPolicy"])
    assert ("PodDisruptionBudget", "shop-relay") in _of_relay(replicas=1).unwanted


def test_everything_that_the_cluster_offers_is_made_use_of() -> None:
    wanted, unwanted = _kinds(_of_listener(_SCALED, _ALL))
    assert wanted == [
        "NetworkPolicy",
        "Deployment",
        "PodDisruptionBudget",
        "PodMonitor",
        "TriggerAuthentication",
        "ScaledObject",
    ]
    assert unwanted == []


def test_a_scaler_that_is_no_longer_wanted_is_the_first_to_go() -> None:
    found = _of_listener(_WORKER, _ALL)
    assert found.unwanted[:2] == (
        ("ScaledObject", "send-welcome-mail-worker"),
        ("TriggerAuthentication", "send-welcome-mail-worker"),
    )


def test_kinds_that_the_cluster_does_not_know_are_neither_made_nor_removed() -> None:
    wanted, unwanted = _kinds(_of_listener(_SCALED))
    assert wanted == ["Deployment"]
    assert not {"ScaledObject", "TriggerAuthentication", "PodMonitor"} & set(unwanted)


def test_a_program_that_serves_no_metrics_is_not_monitored() -> None:
    wanted, unwanted = _kinds(_of_listener({"worker.image": "shop:1"}, _ALL))
    assert "PodMonitor" not in wanted
    assert "PodMonitor" in unwanted


def test_a_listener_that_lost_its_worker_has_no_children() -> None:
    listener = OutboxListener.model_validate(LISTENER)
    wanted, unwanted = _kinds(no_children(listener, _ALL))
    assert wanted == []
    assert unwanted == _kinds(_of_listener(_SCALED, _ALL))[1] + [
        "ScaledObject",
        "TriggerAuthentication",
        "PodMonitor",
        "PodDisruptionBudget",
        "Deployment",
        "NetworkPolicy",
    ]


def test_a_scaler_looks_at_the_listeners_queue() -> None:
    scaled = _the("ScaledObject", _of_listener(_SCALED, _ALL))["spec"]
    assert (scaled["minReplicaCount"], scaled["maxReplicaCount"]) == (0, 5)
    assert scaled["scaleTargetRef"]["name"] == "send-welcome-mail-worker"
    [trigger] = scaled["triggers"]
    assert trigger["metadata"] == {
        "protocol": "amqp",
        "mode": "QueueLength",
        "value": "50",
        "queueName": "default.send-welcome-mail",
    }
    assert "replicas" not in _the("Deployment", _of_listener(_SCALED, _ALL))["spec"]


@pytest.mark.parametrize(
    ("has_ca", "parameters"),
    [(False, {"host": "broker-uri"}), (True, {"host": "broker-uri", "ca": "ca.crt", "tls": "tls"})],
    ids=["plain", "with a CA"],
)
def test_a_scaler_enters_as_the_workers_do(has_ca: bool, parameters: dict[str, str]) -> None:
    found = _the("TriggerAuthentication", _of_listener(_SCALED, _ALL, has_ca=has_ca))
    references = found["spec"]["secretTargetRef"]
    assert {each["parameter"]: each["key"] for each in references} == parameters
    assert {each["name"] for each in references} == {_SECRET}
    written = secret_data(broker_uri="amqp://x", ca="PEM" if has_ca else None)
    assert set(parameters.values()) <= written.keys()


def test_a_scaler_for_one_worker_needs_no_budget() -> None:
    one = {**_WORKER, "worker.autoscaling": {"max": 1}}
    assert "PodDisruptionBudget" in _kinds(_of_listener(one, _ALL))[1]


def test_a_secret_holds_what_pods_read_and_is_never_changed() -> None:
    relay = OutboxRelay.model_validate(changed(RELAY, {".metadata.uid": "u1"}))
    data = secret_data(broker_uri="amqp://ü", database_uri="postgresql://x")
    secret = secret_manifest(relay, "shop-1", data, {"outbox.dev/note": "1"})
    assert (secret["type"], secret["immutable"]) == ("Opaque", True)
    assert {key: base64.b64decode(value).decode() for key, value in secret["data"].items()} == data
    assert secret["metadata"]["annotations"] == {"outbox.dev/note": "1"}
    assert secret["metadata"]["ownerReferences"][0]["uid"] == "u1"
    assert "annotations" not in secret_manifest(relay, "shop-1", data)["metadata"]
