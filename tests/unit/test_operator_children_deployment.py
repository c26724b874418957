import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from outbox_operator.children.deployment import DEFAULT_IMAGE, INPUTS, VERSION, deployment
from outbox_operator.children.pod_template import CA_FILE
from outbox_operator.children.workload import Workload, relay_workload, worker_workload
from outbox_operator.resources import OutboxListener, OutboxRelay
from tests.operator.manifests import FULL_LISTENER, FULL_RELAY, LISTENER, RELAY, Manifest, changed

_GOLDEN = Path(__file__).parent.parent / "operator" / "golden_children"
_SECRET = "shop-1"  # noqa: S105 - the name of one
_WORKER = changed(LISTENER, {"handler": "shop.listeners:on_user", "worker.image": "shop:1"})


def _relay(manifest: Manifest, *, has_ca: bool = False) -> Workload:
    relay = OutboxRelay.model_validate(changed(manifest, {".metadata.uid": "u1"}))
    return relay_workload(relay, image="relay:1", secret_name=_SECRET, has_ca=has_ca)


def _worker(manifest: Manifest, *, has_ca: bool = False, replicas: int | None = 2) -> Workload:
    listener = OutboxListener.model_validate(changed(manifest, {".metadata.uid": "u2"}))
    return worker_workload(listener, "outbox", "mails", secret_name=_SECRET, has_ca=has_ca, replicas=replicas)


_WORKLOADS = {
    "short_relay": _relay(RELAY),
    "full_relay": _relay(FULL_RELAY, has_ca=True),
    "short_worker": _worker(_WORKER),
    "full_worker": _worker(FULL_LISTENER, has_ca=True, replicas=None),
    "any_program": _worker(changed(LISTENER, {"worker.image": "shop:1"})),
}


def _pod(workload: Workload) -> dict[str, Any]:
    pod: dict[str, Any] = deployment(workload)["spec"]["template"]["spec"]
    return pod


def _container(workload: Workload) -> dict[str, Any]:
    [container] = _pod(workload)["containers"]
    assert isinstance(container, dict)
    return container


def _variables(workload: Workload) -> dict[str, dict[str, Any]]:
    listed = _container(workload)["env"]
    by_name = {variable["name"]: variable for variable in listed}
    assert len(by_name) == len(listed)
    return by_name


@pytest.mark.parametrize("name", _WORKLOADS)
def test_a_deployment_is_as_its_golden_file_has_it(name: str) -> None:
    """Other pods need another TEMPLATE_VERSION, else an upgrade of the operator restarts everybody's."""
    made, file = deployment(_WORKLOADS[name]), _GOLDEN / f"{name}.yaml"
    kept: Any = yaml.safe_load(file.read_text()) if file.exists() else None
    if os.environ.get("WRITE_GOLDEN"):
        is_raised = kept is None or _version(made) > _version(kept)
        assert is_raised or made["spec"]["template"] == kept["spec"]["template"], "raise TEMPLATE_VERSION"
        file.write_text(yaml.safe_dump(made, sort_keys=False))
        return
    assert made == kept, (
        "where this is meant, raise TEMPLATE_VERSION in pod_template.py and run with WRITE_GOLDEN=1"
    )


def _version(manifest: Manifest) -> int:
    return int(manifest["metadata"]["annotations"][VERSION])


def test_scaling_changes_the_number_and_nothing_else() -> None:
    few, many = deployment(_worker(_WORKER, replicas=1)), deployment(_worker(_WORKER, replicas=9))
    assert (few["spec"].pop("replicas"), many["spec"].pop("replicas")) == (1, 9)
    assert few == many


def test_where_a_scaler_says_how_many_the_number_is_left_out() -> None:
    assert "replicas" not in deployment(_worker(_WORKER, replicas=None))["spec"]


def test_no_replicas_are_said_as_such() -> None:
    assert deployment(_relay(changed(RELAY, {"replicas": 0})))["spec"]["replicas"] == 0


def test_the_inputs_are_a_short_hash_that_changes_with_the_spec() -> None:
    def inputs(manifest: Manifest) -> str:
        text: str = deployment(_relay(manifest))["metadata"]["annotations"][INPUTS]
        return text

    assert len(inputs(RELAY)) == 16
    assert inputs(RELAY) == inputs(changed(RELAY, {"replicas": 7}))
    assert inputs(RELAY) != inputs(changed(RELAY, {"lanes": 7}))


def test_only_a_default_image_is_noted_as_such() -> None:
    assert deployment(_relay(RELAY))["metadata"]["annotations"][DEFAULT_IMAGE] == "relay:1"
    assert DEFAULT_IMAGE not in deployment(_relay(FULL_RELAY))["metadata"]["annotations"]
    assert DEFAULT_IMAGE not in deployment(_worker(_WORKER))["metadata"]["annotations"]


@pytest.mark.parametrize(("timeout", "grace"), [("0s", 6), ("300ms", 7), ("30s", 36), ("1m1ms", 67)], ids=str)
def test_a_pod_has_the_time_that_its_process_takes_to_stop(timeout: str, grace: int) -> None:
    pod = _pod(_worker(changed(_WORKER, {"worker.shutdownTimeout": timeout})))
    assert pod["terminationGracePeriodSeconds"] == grace


def test_urls_come_from_the_secret_and_are_nowhere_else() -> None:
    variables = _variables(_relay(RELAY))
    assert variables["OUTBOX_BROKER_URL"] == {
        "name": "OUTBOX_BROKER_URL",
        "valueFrom": {"secretKeyRef": {"name": _SECRET, "key": "broker-uri"}},
    }
    assert variables["OUTBOX_DATABASE_URL"]["valueFrom"]["secretKeyRef"]["key"] == "database-uri"


def test_a_setting_with_a_dollar_sign_arrives_as_it_is() -> None:
    # Kubernetes reads $(NAME) as a reference, and $$ as one dollar sign.
    relay = _relay(changed(RELAY, {"database.channel": "a$b$$(HOME)"}))
    assert _variables(relay)["OUTBOX_CHANNEL"]["value"] == "a$$b$$$$(HOME)"


def test_a_variable_of_the_template_wins_over_a_setting() -> None:
    env = [{"name": "OUTBOX_BATCH_SIZE", "value": "7"}, {"name": "TZ", "value": "UTC"}]
    variables = _variables(_relay(changed(RELAY, {"template.env": env})))
    assert variables["OUTBOX_BATCH_SIZE"]["value"] == "7"
    assert variables["TZ"]["value"] == "UTC"


@pytest.mark.parametrize(
    "name",
    ["OUTBOX_BROKER_URL", "OUTBOX_EXCHANGE_NAME", "OUTBOX_QUEUE", "OUTBOX_PROVISIONED", "OUTBOX_PROBE_PORT"],
)
def test_a_variable_that_ties_a_pod_to_what_was_made_for_it_is_the_operators(name: str) -> None:
    worker = _worker(changed(_WORKER, {"worker.template.env": [{"name": name, "value": "other"}]}))
    assert _variables(worker)[name] == _variables(_worker(_WORKER))[name]


def test_a_worker_may_be_given_a_database() -> None:
    env = [{"name": "OUTBOX_DATABASE_URL", "valueFrom": {"secretKeyRef": {"name": "shop-db", "key": "uri"}}}]
    worker = _worker(changed(_WORKER, {"worker.template.env": env}))
    assert _variables(worker)["OUTBOX_DATABASE_URL"] == env[0]


def test_labels_of_the_template_never_hide_the_pods_from_their_selector() -> None:
    labels = {"app.kubernetes.io/name": "mine", "team": "shop"}
    made = deployment(_relay(changed(RELAY, {"template.labels": labels})))["spec"]
    found = made["template"]["metadata"]["labels"]
    assert found["team"] == "shop"
    assert made["selector"]["matchLabels"].items() <= found.items()


def test_a_ca_is_a_file_in_the_container() -> None:
    worker = _worker(_WORKER, has_ca=True)
    assert CA_FILE == "/etc/outbox/ca/ca.crt"
    assert {"name": "outbox-ca", "mountPath": "/etc/outbox/ca", "readOnly": True} in _container(worker)[
        "volumeMounts"
    ]
    items = [{"key": "ca.crt", "path": "ca.crt"}]
    secret = {"secretName": _SECRET, "items": items}
    assert {"name": "outbox-ca", "secret": secret} in _pod(worker)["volumes"]


def test_a_user_who_mounts_tmp_has_that_one() -> None:
    mounts = [{"name": "scratch", "mountPath": "/tmp/"}]  # noqa: S108 - a container's
    volumes = [{"name": "scratch", "emptyDir": {"medium": "Memory"}}]
    worker = _worker(
        changed(_WORKER, {"worker.template.volumeMounts": mounts, "worker.template.volumes": volumes})
    )
    assert _container(worker)["volumeMounts"] == mounts
    assert _pod(worker)["volumes"] == volumes


def test_an_image_is_pulled_with_the_secrets_that_are_named() -> None:
    secrets = [{"name": "registry"}, {"name": "mirror"}]
    relay = _relay(changed(RELAY, {"template.imagePullSecrets": secrets}))
    worker = _worker(changed(_WORKER, {"worker.template.imagePullSecrets": secrets}))
    assert _pod(relay)["imagePullSecrets"] == _pod(worker)["imagePullSecrets"] == secrets


def test_where_no_secret_is_named_nothing_is_said_of_any() -> None:
    """Else an operator that knows of them would take pods of an older one for drifted."""
    relay = _relay(changed(RELAY, {"template.imagePullSecrets": []}))
    assert "imagePullSecrets" not in _pod(relay)
    assert deployment(relay) == deployment(_relay(RELAY))


def test_resources_are_requested_where_the_user_says_nothing() -> None:
    assert _container(_relay(RELAY))["resources"] == {"requests": {"cpu": "50m", "memory": "96Mi"}}
    given = {"limits": {"memory": "1Gi"}}
    assert _container(_relay(changed(RELAY, {"template.resources": given})))["resources"] == given


def test_pods_spread_over_nodes_unless_the_user_places_them() -> None:
    [spread] = _pod(_relay(RELAY))["topologySpreadConstraints"]
    assert (spread["topologyKey"], spread["whenUnsatisfiable"]) == (
        "kubernetes.io/hostname",
        "ScheduleAnyway",
    )
    placed = _pod(_relay(changed(RELAY, {"template.affinity": {"nodeAffinity": {}}})))
    assert "topologySpreadConstraints" not in placed


def test_a_spread_without_a_selector_is_that_of_these_pods() -> None:
    own = {"matchLabels": {"a": "b"}}
    given = [{"maxSkew": 1, "topologyKey": "zone"}, {"maxSkew": 1, "topologyKey": "x", "labelSelector": own}]
    made = deployment(_relay(changed(RELAY, {"template.topologySpreadConstraints": given})))["spec"]
    selectors = [each["labelSelector"] for each in made["template"]["spec"]["topologySpreadConstraints"]]
    assert selectors == [made["selector"], own]


def test_a_program_that_is_not_ours_is_not_asked_for_probes() -> None:
    container = _container(_WORKLOADS["any_program"])
    assert not {"livenessProbe", "readinessProbe", "startupProbe", "command"} & container.keys()
