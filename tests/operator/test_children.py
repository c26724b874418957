"""The children of a resource as the API server takes them."""

from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import pytest

from outbox_operator.children.applying import Apply, to_apply, without_bulk
from outbox_operator.children.deployment import VERSION, deployment
from outbox_operator.children.family import Facilities, children
from outbox_operator.children.names import FIELD_MANAGER, REPLICAS_MANAGER, child_name
from outbox_operator.children.pod_secret import secret_data, secret_manifest
from outbox_operator.children.workload import Workload, relay_workload, worker_workload
from outbox_operator.resources import OutboxListener, OutboxRelay
from outbox_operator.subscriptions import queue_of
from tests.operator.control_plane.api import Api, RefusedError
from tests.operator.manifests import FULL_LISTENER, FULL_RELAY, LISTENER, RELAY, Manifest, changed

pytestmark = pytest.mark.usefixtures("neighbours")

_ALL = Facilities(pod_monitors=True, keda=True, network_policies=True)
_PLURALS = {
    "Secret": "secrets",
    "Deployment": "deployments",
    "PodDisruptionBudget": "poddisruptionbudgets",
    "NetworkPolicy": "networkpolicies",
    "PodMonitor": "podmonitors",
    "ScaledObject": "scaledobjects",
    "TriggerAuthentication": "triggerauthentications",
}
_WORKER = {"handler": "shop.listeners:on_user", "worker.image": "shop:1"}
# Seconds are for what evicts a pod, which the resource's own schema does not know.
_TOLERATIONS = [{"key": "spot", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}]
_VALID_RELAY = changed(FULL_RELAY, {"template.tolerations": _TOLERATIONS})
_VALID_LISTENER = changed(FULL_LISTENER, {"worker.template.tolerations": _TOLERATIONS})
_SCALE = {"apiVersion": "autoscaling/v1", "kind": "Scale"}
_SECRET = "shop-1"  # noqa: S105 - the name of one

_RESOURCES = [
    ("a short relay", RELAY, {}),
    ("a full relay", _VALID_RELAY, {}),
    ("a short worker", LISTENER, _WORKER),
    ("a full listener", _VALID_LISTENER, {}),
    ("a program of any language", LISTENER, {"worker.image": "shop:1", "retryDelays": []}),
    ("a very long name", RELAY, {".metadata.name": "shop." * 50 + "x", "replicas": 2}),
    (
        "quantities in other words",
        RELAY,
        {"template.resources": {"requests": {"cpu": 0.25, "memory": "1024Mi"}, "limits": {"cpu": "1000m"}}},
    ),
    (
        "things that the server leaves out",
        RELAY,
        {
            "template": {
                "env": [{"name": "EMPTY", "value": ""}],
                "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1000k"}}],
                "volumeMounts": [{"name": "v", "mountPath": "/v", "readOnly": False}],
                "tolerations": [{"operator": "Exists"}],
            }
        },
    ),
]


def _workload(
    api: Api, namespace: str, manifest: Manifest, changes: dict[str, Any] | None = None
) -> Workload:
    """The workload of a resource that exists, with the defaults that the server gave it."""
    stored = api.create(changed(manifest, {".metadata.namespace": namespace, **(changes or {})}))
    if stored["kind"] == "OutboxRelay":
        relay = OutboxRelay.model_validate(stored)
        return relay_workload(relay, image="relay:1", secret_name=_SECRET, has_ca=True)
    listener = OutboxListener.model_validate(stored)
    assert listener.spec.worker is not None
    return worker_workload(
        listener,
        "outbox",
        queue_of(listener),
        secret_name=_SECRET,
        has_ca=True,
        replicas=None if listener.spec.worker.autoscaling else listener.spec.worker.replicas,
    )


def _address(manifest: Manifest) -> str:
    version, metadata = manifest["apiVersion"], manifest["metadata"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    return f"{root}/namespaces/{metadata['namespace']}/{_PLURALS[manifest['kind']]}/{metadata['name']}"


def _applied(api: Api, step: Apply) -> Manifest:
    query = {"fieldManager": step.manager, "force": str(step.force).lower(), "fieldValidation": "Strict"}
    address = f"{_address(step.manifest)}?{urlencode(query)}"
    return api.request("PATCH", address, step.manifest, "application/apply-patch+yaml")


def _reconciled(api: Api, desired: Manifest, live: Manifest | None) -> Manifest:
    """The live object after everything that has to be applied was, and it was enough."""
    steps = to_apply(desired, live)
    assert steps, "nothing was to be applied"
    for step in steps:
        live = _applied(api, step)
    assert live is not None
    assert to_apply(desired, live) == ()
    return live


def _scaled(api: Api, live: Manifest, replicas: int) -> Manifest:
    """As an autoscaler does it."""
    identity = {field: live["metadata"][field] for field in ("name", "namespace")}
    body = {**_SCALE, "metadata": identity, "spec": {"replicas": replicas}}
    api.request("PUT", f"{_address(live)}/scale?fieldManager=some-scaler", body)
    return api.request("GET", _address(live))


@pytest.mark.parametrize(
    ("manifest", "changes"), [case[1:] for case in _RESOURCES], ids=[case[0] for case in _RESOURCES]
)
def test_every_child_is_taken_and_is_then_as_it_should_be(
    api: Api, namespace: str, manifest: Manifest, changes: dict[str, Any]
) -> None:
    workload = _workload(api, namespace, manifest, changes)
    data = secret_data(broker_uri="amqp://x", database_uri="postgresql://x", ca="PEM")
    secret = secret_manifest(workload.owner, _SECRET, data)
    for desired in (secret, *children(workload, _ALL).wanted):
        first = _reconciled(api, desired, None)
        again = _applied(api, Apply(desired))
        assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"], desired["kind"]
        assert again["metadata"].get("generation") == first["metadata"].get("generation")
        assert to_apply(desired, without_bulk(again)) == (), desired["kind"]


def test_all_kinds_of_children_were_tried(api: Api, namespace: str) -> None:
    found = children(_workload(api, namespace, _VALID_LISTENER), _ALL)
    assert {manifest["kind"] for manifest in found.wanted} == _PLURALS.keys() - {"Secret"}


def test_the_defaults_that_the_server_writes_are_no_input(api: Api, namespace: str) -> None:
    written = OutboxRelay.model_validate(RELAY)
    bare = relay_workload(written, image="relay:1", secret_name=_SECRET, has_ca=True)
    assert _workload(api, namespace, RELAY).inputs == bare.inputs


@pytest.mark.parametrize(
    ("manifest", "changes"), [case[1:] for case in _RESOURCES[:6]], ids=[case[0] for case in _RESOURCES[:6]]
)
def test_the_pods_pass_the_standard_restricted(
    api: Api, namespace: str, manifest: Manifest, changes: dict[str, Any]
) -> None:
    enforced = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    api.request("PATCH", f"/api/v1/namespaces/{namespace}", enforced, "application/merge-patch+json")
    workload = _workload(api, namespace, manifest, changes)
    # What a controller, and whoever wrote the template, would have made.
    account = workload.template.service_account_name or "default"
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    api.request("POST", accounts, {"metadata": {"name": account}})
    _make_priority_class(api)
    template = deployment(workload)["spec"]["template"]
    pod = {"metadata": {"name": "pod", **template["metadata"]}, "spec": template["spec"]}
    pods = f"/api/v1/namespaces/{namespace}/pods?fieldValidation=Strict"
    assert "token" not in str(api.request("POST", pods, pod)["spec"]["volumes"])


def _make_priority_class(api: Api) -> None:
    path, body = "/apis/scheduling.k8s.io/v1/priorityclasses/high", {"metadata": {"name": "high"}, "value": 1}
    head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    api.request("PATCH", f"{path}?fieldManager=tests", {**head, **body}, "application/apply-patch+yaml")


def test_a_pod_that_is_not_restricted_is_refused_there(api: Api, namespace: str) -> None:
    """The control: the standard is really enforced."""
    enforced = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    api.request("PATCH", f"/api/v1/namespaces/{namespace}", enforced, "application/merge-patch+json")
    api.request("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "default"}})
    spec = {"containers": [{"name": "a", "image": "a"}]}
    with pytest.raises(RefusedError, match="violates PodSecurity"):
        api.request("POST", f"/api/v1/namespaces/{namespace}/pods", {"metadata": {"name": "a"}, "spec": spec})


def test_what_others_write_survives(api: Api, namespace: str) -> None:
    workload = _workload(api, namespace, RELAY)
    live = _reconciled(api, deployment(workload), None)
    sidecar = {"name": "sidecar", "image": "sidecar:1"}
    theirs = {
        "metadata": {"labels": {"team": "shop"}, "annotations": {"example.org/x": "1"}},
        "spec": {"template": {"spec": {"containers": [sidecar]}}},
    }
    live = api.request("PATCH", _address(live), theirs, "application/strategic-merge-patch+json")
    assert to_apply(deployment(workload), live) == ()
    edited = replace(workload, environment={**workload.environment, "OUTBOX_LANES": "9"})
    live = _reconciled(api, deployment(edited), live)
    assert live["metadata"]["labels"]["team"] == "shop"
    assert live["metadata"]["annotations"]["example.org/x"] == "1"
    assert {each["name"] for each in live["spec"]["template"]["spec"]["containers"]} == {"relay", "sidecar"}


def test_pull_secrets_of_others_stay_beside_ours(api: Api, namespace: str) -> None:
    workload = _workload(api, namespace, RELAY, {"template.imagePullSecrets": [{"name": "registry"}]})
    live = _reconciled(api, deployment(workload), None)
    theirs = {"spec": {"template": {"spec": {"imagePullSecrets": [{"name": "mirror"}]}}}}
    live = api.request("PATCH", _address(live), theirs, "application/strategic-merge-patch+json")
    names = [secret["name"] for secret in live["spec"]["template"]["spec"]["imagePullSecrets"]]
    assert sorted(names) == ["mirror", "registry"]
    assert to_apply(deployment(workload), live) == ()


def test_a_template_that_was_edited_by_hand_is_put_right(api: Api, namespace: str) -> None:
    workload = _workload(api, namespace, RELAY)
    live = _reconciled(api, deployment(workload), None)
    theirs = {"spec": {"template": {"spec": {"containers": [{"name": "relay", "image": "other:1"}]}}}}
    live = api.request("PATCH", _address(live), theirs, "application/strategic-merge-patch+json")
    live = _reconciled(api, deployment(workload), live)
    assert live["spec"]["template"]["spec"]["containers"][0]["image"] == "relay:1"


def test_what_is_no_longer_asked_for_goes(api: Api, namespace: str) -> None:
    workload = _workload(api, namespace, _VALID_RELAY)
    live = _reconciled(api, deployment(workload), None)
    assert live["spec"]["template"]["spec"]["nodeSelector"] == {"disk": "ssd"}
    owner = OutboxRelay.model_validate(
        changed(RELAY, {".metadata.namespace": namespace, ".metadata.uid": workload.owner.metadata.uid})
    )
    bare = relay_workload(owner, image="relay:1", secret_name=_SECRET, has_ca=False)
    pod = _reconciled(api, deployment(bare), live)["spec"]["template"]["spec"]
    assert not {"nodeSelector", "tolerations", "affinity", "priorityClassName"} & pod.keys()
    assert [volume["name"] for volume in pod["volumes"]] == ["outbox-tmp"]


def test_replicas_stay_as_they_are_when_a_scaler_takes_over(api: Api, namespace: str) -> None:
    workload = _workload(api, namespace, RELAY, {"replicas": 3})
    live = _reconciled(api, deployment(workload), None)
    by_scaler = deployment(replace(workload, replicas=None))
    handover, apply = to_apply(by_scaler, live)
    assert (handover.manager, apply.manager) == (REPLICAS_MANAGER, FIELD_MANAGER)
    live = _reconciled(api, by_scaler, live)
    assert live["spec"]["replicas"] == 3
    live = _scaled(api, live, 7)
    assert to_apply(by_scaler, live) == ()
    edited = deployment(replace(workload, replicas=None, command=("python", "-m", "other")))
    live = _reconciled(api, edited, live)
    assert live["spec"]["replicas"] == 7


def test_without_a_handover_replicas_would_be_reset(api: Api, namespace: str) -> None:
    """The control: that is what the handover is for."""
    workload = _workload(api, namespace, RELAY, {"replicas": 3})
    _reconciled(api, deployment(workload), None)
    live = _applied(api, Apply(deployment(replace(workload, replicas=None))))
    assert live["spec"]["replicas"] == 1


def test_a_scaler_that_speaks_up_during_a_handover_is_heard(api: Api, namespace: str) -> None:
    workload = _workload(api, namespace, RELAY, {"replicas": 3})
    live = _reconciled(api, deployment(workload), None)
    by_scaler = deployment(replace(workload, replicas=None))
    handover, _ = to_apply(by_scaler, live)
    live = _scaled(api, live, 7)
    with pytest.raises(RefusedError, match="conflict"):
        _applied(api, handover)
    # At the next look there is nothing left to hand over.
    assert to_apply(by_scaler, live) == ()
    assert live["spec"]["replicas"] == 7


def test_replicas_come_back_from_a_scaler(api: Api, namespace: str) -> None:
    workload = _workload(api, namespace, RELAY, {"replicas": 3})
    live = _reconciled(api, deployment(replace(workload, replicas=None)), None)
    live = _scaled(api, live, 7)
    live = _reconciled(api, deployment(workload), live)
    assert live["spec"]["replicas"] == 3
    live = _reconciled(api, deployment(replace(workload, replicas=None)), live)
    assert live["spec"]["replicas"] == 3


def test_an_upgrade_leaves_the_pods_alone_until_the_spec_changes(api: Api, namespace: str) -> None:
    workload = _workload(api, namespace, RELAY, {"replicas": 2})
    earlier = changed(deployment(workload), {".spec.template.spec.terminationGracePeriodSeconds": 99})
    earlier["metadata"]["annotations"][VERSION] = "0"
    live = _applied(api, Apply(earlier))
    assert to_apply(deployment(replace(workload, image="relay:2")), live) == ()

    noted = deployment(replace(workload, replicas=4))
    noted["metadata"]["annotations"]["outbox.dev/note"] = "1"
    before, live = live, _reconciled(api, noted, live)
    assert live["spec"] == {**before["spec"], "replicas": 4}
    assert live["metadata"]["annotations"]["outbox.dev/note"] == "1"
    assert live["metadata"]["annotations"][VERSION] == "0"

    noted = deployment(replace(workload, replicas=5))
    noted["metadata"]["annotations"]["outbox.dev/note"] = "1"
    live = _reconciled(api, noted, live)
    assert live["metadata"]["annotations"]["outbox.dev/note"] == "1"

    edited = replace(workload, replicas=5, image="relay:2", inputs={"spec": "other"})
    live = _reconciled(api, deployment(edited), live)
    pod = live["spec"]["template"]["spec"]
    assert (pod["containers"][0]["image"], pod["terminationGracePeriodSeconds"]) == ("relay:2", 36)
    assert live["spec"]["replicas"] == 5


def test_a_deployment_that_went_meanwhile_is_not_made_from_its_replicas(api: Api, namespace: str) -> None:
    workload = _workload(api, namespace, RELAY)
    live = _reconciled(api, deployment(workload), None)
    handover, _ = to_apply(deployment(replace(workload, replicas=None)), live)
    api.request("DELETE", _address(live))
    with pytest.raises(RefusedError):
        _applied(api, handover)


def test_a_secret_is_never_changed(api: Api, namespace: str) -> None:
    owner = _workload(api, namespace, RELAY).owner
    _applied(api, Apply(secret_manifest(owner, _SECRET, secret_data(broker_uri="amqp://x"))))
    with pytest.raises(RefusedError, match="immutable"):
        _applied(api, Apply(secret_manifest(owner, _SECRET, secret_data(broker_uri="amqp://y"))))


def test_the_selector_finds_the_children(api: Api, namespace: str) -> None:
    workload = _workload(api, namespace, RELAY)
    _reconciled(api, deployment(workload), None)
    query = urlencode({"labelSelector": "app.kubernetes.io/managed-by=outbox-operator"})
    found = api.request("GET", f"/apis/apps/v1/namespaces/{namespace}/deployments?{query}")["items"]
    assert [each["metadata"]["name"] for each in found] == [child_name(workload.owner)]
    # A list's items have neither kind nor apiVersion.
    assert to_apply(deployment(workload), found[0]) == ()
