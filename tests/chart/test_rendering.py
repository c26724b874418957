"""What Helm makes of the chart, Helm 3 and Helm 4 alike."""

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from outbox_operator.crds import DEFINITIONS
from outbox_operator.rbac import LEASE_RIGHTS, RESOURCE_RIGHTS
from outbox_operator.settings import Settings, from_environment
from tests.chart.helm import CHART, KUBERNETES, Helm, HelmError, Manifest, only
from tests.chart.variants import API_SERVER, DNS, PROMETHEUS, SET, variants

NAMESPACE = "operators"
CLUSTER_WIDE = {"CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding"}
VARIANTS = [pytest.param(values, id=name) for name, values in variants().items()]


def permitted(rules: Iterable[Manifest]) -> set[tuple[str, str, str, tuple[str, ...]]]:
    """What rules allow, each thing apart: group, resource, verb and the names, none of them for any."""
    return {
        (group, resource, verb, tuple(rule.get("resourceNames", ())))
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def environment(deployment: Manifest) -> dict[str, str]:
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    names = [variable["name"] for variable in container["env"]]
    assert len(names) == len(set(names)), "a variable is given twice"
    return {variable["name"]: variable["value"] for variable in container["env"]}


@pytest.mark.parametrize("values", VARIANTS)
def test_it_lints(helm: Helm, values: dict[str, Any]) -> None:
    said = helm.run("lint", "--strict", "--namespace", NAMESPACE, *KUBERNETES, str(CHART), values=values)
    assert "0 chart(s) failed" in said
    assert "[WARNING]" not in said


@pytest.mark.parametrize("values", VARIANTS)
def test_every_object_has_a_place_a_name_and_labels_of_its_own(helm: Helm, values: dict[str, Any]) -> None:
    places = []
    for manifest in helm.render(values):
        metadata = manifest["metadata"]
        places.append((manifest["kind"], metadata.get("namespace"), metadata["name"]))
        if manifest["kind"] in CLUSTER_WIDE:
            assert "namespace" not in metadata
        else:
            assert metadata["namespace"] in (NAMESPACE, *values.get("watchNamespaces", ()))
        assert metadata["labels"]["app.kubernetes.io/instance"] == "outbox-operator"
    assert len(places) == len(set(places))


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"replica": 3}, "'replica' not allowed"),
        ({"image": {"tagg": "1"}}, "'tagg' not allowed"),
        ({"image": {"tag": 1.5}}, "/image/tag"),
        ({"image": {"pullPolicy": "Sometimes"}}, "/image/pullPolicy"),
        ({"image": {"digest": "abc"}}, "/image/digest"),
        ({"replicas": "two"}, "/replicas"),
        ({"replicas": -1}, "/replicas"),
        ({"watchNamespaces": "shop"}, "/watchNamespaces"),
        ({"watchNamespaces": ["Shop"]}, "/watchNamespaces/0"),
        ({"watchNamespaces": ["shop", "shop"]}, "/watchNamespaces"),
        ({"crds": {"installed": True}}, "'installed' not allowed"),
        ({"crds": {"keep": "yes"}}, "/crds/keep"),
        ({"settings": {"driftSecond": 3}}, "'driftSecond' not allowed"),
        ({"settings": {"driftSeconds": 0}}, "/settings/driftSeconds"),
        ({"settings": {"hands": 1.5}}, "/settings/hands"),
        ({"settings": {"allowedHosts": "db"}}, "/settings/allowedHosts"),
        ({"settings": {"allowedHosts": ["db,evil"]}}, "/settings/allowedHosts/0"),
        ({"networkPolicy": {"egress": ["10.0.0.1"]}}, "/networkPolicy/egress/0"),
        ({"log": {"level": "info"}}, "/log/level"),
        ({"imagePullSecrets": ["registry"]}, "/imagePullSecrets/0"),
        ({"podLabels": {"version": 1}}, "/podLabels/version"),
        ({"podMonitor": {"interval": "often"}}, "/podMonitor/interval"),
        ({"serviceAccount": {"create": False}}, "serviceAccount.name: name the ServiceAccount that is there"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_a_mistake_is_refused_and_named(helm: Helm, values: dict[str, Any], complaint: str) -> None:
    with pytest.raises(HelmError) as refusal:
        helm.render(values)
    assert complaint in str(refusal.value)


def test_the_whole_cluster_is_watched_by_exactly_the_rights_of_the_operator(helm: Helm) -> None:
    manifests = helm.render()
    name = f"{NAMESPACE}:outbox-operator"
    role, binding = only(manifests, "ClusterRole", name), only(manifests, "ClusterRoleBinding", name)
    assert permitted(role["rules"]) == permitted(right.manifest() for right in RESOURCE_RIGHTS)
    assert binding["roleRef"]["name"] == name
    assert binding["subjects"] == [_account("outbox-operator")]
    assert [each["metadata"]["name"] for each in manifests if each["kind"] == "Role"] == [
        "outbox-operator-leader"
    ]


def test_namespaces_are_watched_by_a_role_in_each_and_nothing_cluster_wide(helm: Helm) -> None:
    manifests = helm.render({"watchNamespaces": ["shop", "billing"], "crds": {"install": False}})
    assert not [manifest for manifest in manifests if manifest["kind"] in CLUSTER_WIDE]
    for namespace in ("shop", "billing"):
        here = [each for each in manifests if each["metadata"]["namespace"] == namespace]
        assert sorted(each["kind"] for each in here) == ["Role", "RoleBinding"]
        role, binding = only(here, "Role"), only(here, "RoleBinding")
        assert permitted(role["rules"]) == permitted(right.manifest() for right in RESOURCE_RIGHTS)
        assert binding["roleRef"] == {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "Role",
            "name": role["metadata"]["name"],
        }
        assert binding["subjects"] == [_account("outbox-operator")]
    assert environment(only(manifests, "Deployment"))["OUTBOX_NAMESPACES"] == "shop,billing"


def test_the_lease_is_the_only_one_that_may_be_read_or_written(helm: Helm) -> None:
    manifests = helm.render()
    allowed = permitted(only(manifests, "Role", "outbox-operator-leader")["rules"])
    wanted = permitted(right.manifest() for right in LEASE_RIGHTS)
    assert {each[:3] for each in allowed} == {each[:3] for each in wanted}
    name = environment(only(manifests, "Deployment"))["OUTBOX_LEASE_NAME"]
    # A creation cannot be limited by name: the API server does not know it yet.
    assert {verb for *_, verb, names in allowed if names != (name,)} == {"create"}


@pytest.mark.parametrize("where", [{}, {"watchNamespaces": ["shop"]}], ids=["cluster", "namespaced"])
def test_only_the_secrets_that_are_named_may_be_watched(helm: Helm, where: dict[str, Any]) -> None:
    manifests = helm.render({**where, "rbac": {"secretNames": ["shop-db", "shop-rabbitmq"]}})
    kind = "Role" if where else "ClusterRole"
    allowed = permitted(only(manifests, kind, f"{NAMESPACE}:outbox-operator")["rules"])
    wanted = permitted(right.manifest() for right in RESOURCE_RIGHTS)
    assert {each[:3] for each in allowed} == {each[:3] for each in wanted}
    names = ("shop-db", "shop-rabbitmq")
    assert allowed - wanted == {("", "secrets", "watch", names)}


def test_of_its_own_namespace_the_operator_reads_the_secrets_of_administrators_alone(helm: Helm) -> None:
    names = ["rabbitmq-admin", "other-admin"]
    manifests = helm.render({"watchNamespaces": ["shop"], "settings": {"administratorSecrets": names}})
    allowed = permitted(only(manifests, "Role", "outbox-operator-leader")["rules"])
    assert {each for each in allowed if each[1] == "secrets"} == {
        ("", "secrets", verb, tuple(names)) for verb in ("get", "watch")
    }
    without = permitted(only(helm.render(), "Role", "outbox-operator-leader")["rules"])
    assert not [each for each in without if each[1] == "secrets"]


def test_an_account_and_roles_of_ones_own_are_used(helm: Helm) -> None:
    values = {
        "serviceAccount": {"create": False, "name": "mine"},
        "rbac": {"create": False, "userRoles": False},
    }
    manifests = helm.render(values)
    assert {each["kind"] for each in manifests} == {
        "CustomResourceDefinition",
        "Deployment",
        "PodDisruptionBudget",
        "Pod",
    }
    assert only(manifests, "Deployment")["spec"]["template"]["spec"]["serviceAccountName"] == "mine"
    assert only(manifests, "Pod")["spec"]["serviceAccountName"] == "mine"


def test_the_operator_is_told_what_the_values_say(helm: Helm) -> None:
    told = from_environment(environment(only(helm.render(), "Deployment")))
    assert told == Settings(relay_image="outbox-relay:0.1.0", lease_namespace=NAMESPACE)
    manifests = helm.render({**SET, "watchNamespaces": ["shop"], "fullnameOverride": "obx"})
    variables = environment(only(manifests, "Deployment"))
    assert from_environment(variables) == Settings(
        relay_image="outbox-relay:0.1.0",
        namespaces=("shop",),
        lease_namespace=NAMESPACE,
        lease_name="obx",
        hands=4,
        drift_seconds=0.5,
        tier_grace_seconds=1_000_000,
        user_grace_seconds=0,
        give_up_seconds=10,
        count_seconds=2.5,
        network_policies=True,
        allowed_hosts=("*.rds.amazonaws.com", "10.0.0.0/8", "fd00::1"),
        administrator_secrets=("rabbitmq-admin", "other-admin"),
        require_tls=True,
    )
    assert (variables["OUTBOX_LOG_LEVEL"], variables["OUTBOX_LOG_FORMAT"]) == ("DEBUG", "text")
    # `identity` is each process's own.
    assert variables.keys() >= {f"OUTBOX_{name.upper()}" for name in Settings.__slots__} - {"OUTBOX_IDENTITY"}


def test_images_are_those_that_are_asked_for(helm: Helm) -> None:
    manifests = helm.render(variants()["digests"])
    deployment = only(manifests, "Deployment")
    image = "registry.example:5000/outbox-operator@sha256:" + 64 * "0"
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == image
    assert only(manifests, "Pod")["spec"]["containers"][0]["image"] == image
    assert environment(deployment)["OUTBOX_RELAY_IMAGE"] == "registry.example/outbox-relay:2.0"


def test_every_pod_has_what_a_user_gives_to_the_operator(helm: Helm) -> None:
    values = {**variants()["dressed"], **variants()["placed"]}
    manifests = helm.render(values)
    for pod in (only(manifests, "Deployment")["spec"]["template"]["spec"], only(manifests, "Pod")["spec"]):
        [container] = pod["containers"]
        assert pod["imagePullSecrets"] == values["imagePullSecrets"]
        assert pod["nodeSelector"] == values["nodeSelector"]
        assert pod["tolerations"] == values["tolerations"]
        # Without them, a namespace with a quota takes no pod.
        assert container["resources"]["limits"] == values["resources"]["limits"]
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}
        assert values["extraEnv"][0] in container["env"]


def test_nothing_is_said_of_pull_secrets_where_there_are_none(helm: Helm) -> None:
    manifests = helm.render()
    assert "imagePullSecrets" not in only(manifests, "Deployment")["spec"]["template"]["spec"]
    assert "imagePullSecrets" not in only(manifests, "Pod")["spec"]


def test_the_operator_is_probed_where_it_serves(helm: Helm) -> None:
    deployment = only(helm.render(), "Deployment")
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    [port] = container["ports"]
    assert str(port["containerPort"]) == environment(deployment)["OUTBOX_PROBE_PORT"]
    asked = {kind: container[kind]["httpGet"] for kind in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert {probe["port"] for probe in asked.values()} == {port["name"]}
    assert {kind: probe["path"] for kind, probe in asked.items()} == {
        "startupProbe": "/livez",
        "livenessProbe": "/livez",
        "readinessProbe": "/readyz",
    }
    assert only(helm.render(variants()["monitored"]), "PodMonitor")["spec"]["podMetricsEndpoints"] == [
        {"port": port["name"], "path": "/metrics", "interval": "15s"}
    ]


def test_replicas_keep_apart_and_are_not_drained_at_once(helm: Helm) -> None:
    manifests = helm.render()
    deployment = only(manifests, "Deployment")
    selector = deployment["spec"]["selector"]["matchLabels"]
    assert deployment["spec"]["replicas"] == 2
    [apart] = deployment["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"][
        "preferredDuringSchedulingIgnoredDuringExecution"
    ]
    assert apart["podAffinityTerm"]["labelSelector"]["matchLabels"] == selector
    budget = only(manifests, "PodDisruptionBudget")
    assert budget["spec"]["selector"]["matchLabels"] == selector
    assert selector.items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
    assert not [each for each in helm.render({"replicas": 1}) if each["kind"] == "PodDisruptionBudget"]


def test_labels_of_a_user_do_not_replace_those_by_which_pods_are_found(helm: Helm) -> None:
    deployment = only(helm.render(variants()["dressed"]), "Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert labels["team"] == "shop"


def test_spread_constraints_select_the_operator(helm: Helm) -> None:
    deployment = only(helm.render(variants()["placed"]), "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    [constraint] = pod["topologySpreadConstraints"]
    assert constraint["labelSelector"] == deployment["spec"]["selector"]
    assert "podAntiAffinity" not in pod["affinity"]


def test_the_definitions_are_the_types_and_stay_unless_asked_otherwise(helm: Helm) -> None:
    for keep in (True, False):
        manifests = helm.render({"crds": {"keep": keep}})
        for definition in DEFINITIONS:
            wanted = definition.manifest()
            found = only(manifests, "CustomResourceDefinition", wanted["metadata"]["name"])
            assert found["spec"] == wanted["spec"]
            annotations = {"helm.sh/resource-policy": "keep"} if keep else None
            assert found["metadata"].get("annotations") == annotations


def test_monitoring_is_there_where_it_is_asked_for(helm: Helm) -> None:
    kinds = {"PodMonitor", "PrometheusRule", "ConfigMap"}
    assert not kinds & {manifest["kind"] for manifest in helm.render()}
    manifests = helm.render(variants()["monitored"])
    assert only(manifests, "PodMonitor")["metadata"]["labels"]["release"] == "prometheus"
    # Prometheus' own braces are left to it.
    assert only(manifests, "PrometheusRule")["spec"] == yaml.safe_load((CHART / "alerts.yaml").read_text())
    dashboards = only(manifests, "ConfigMap")
    assert dashboards["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert {name: yaml.safe_load(text) for name, text in dashboards["data"].items()} == {
        f"outbox-{path.name}": yaml.safe_load(path.read_text()) for path in CHART.glob("dashboards/*.json")
    }


def test_a_network_policy_leaves_the_probes_and_restricts_what_it_is_told(helm: Helm) -> None:
    assert not [each for each in helm.render() if each["kind"] == "NetworkPolicy"]
    manifests = helm.render(variants()["closed"])
    deployment = only(manifests, "Deployment")
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    [port] = container["ports"]
    probes = {"port": port["name"], "protocol": "TCP"}
    selected = {"podSelector": deployment["spec"]["selector"]}
    assert only(manifests, "NetworkPolicy")["spec"] == {
        **selected,
        "policyTypes": ["Ingress"],
        "ingress": [{"ports": [probes]}],
    }
    both = only(helm.render(variants()["closed-both-ways"]), "NetworkPolicy")
    assert both["spec"] == {
        **selected,
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"ports": [probes], "from": [PROMETHEUS]}],
        "egress": [API_SERVER, DNS],
    }


def test_an_upgrade_has_nothing_that_belongs_to_users_and_changes_no_name_or_selector(
    helm: Helm, tmp_path: Path
) -> None:
    newer = tmp_path / "outbox-operator"
    shutil.copytree(CHART, newer)
    head = newer / "Chart.yaml"
    head.write_text(head.read_text().replace("ersion: 0.1.0", "ersion: 0.2.0"))
    before, after = helm.render(), helm.render(chart=newer)
    names = [(each["kind"], each["metadata"]["name"]) for each in before]
    assert names == [(each["kind"], each["metadata"]["name"]) for each in after]
    for old, new in zip(before, after, strict=True):
        assert not old["kind"].startswith("Outbox")
        if old["kind"] not in ("Deployment", "Pod"):
            assert _without_labels(old) == _without_labels(new)
    old, new = only(before, "Deployment"), only(after, "Deployment")
    assert old["spec"]["selector"] == new["spec"]["selector"]
    assert new["spec"]["template"]["spec"]["containers"][0]["image"] == "outbox-operator:0.2.0"


def _account(name: str) -> Manifest:
    return {"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}


def _without_labels(manifest: Manifest) -> Manifest:
    metadata = {key: value for key, value in manifest["metadata"].items() if key != "labels"}
    return {**manifest, "metadata": metadata}
