"""The cluster that the other tests here stand on."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.images import scratch_image
from tests.cluster.programs import go_program
from tests.e2e.kubectl import Kubectl, Manifest, until

_IMAGE = "outbox.dev/probe:local"


@pytest.fixture(scope="module", autouse=True)
def _probe(
    cluster: Cluster, progress: Callable[[str], None], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """An image with nothing but a program that serves and asks."""
    program = go_program(Path(__file__).parent / "probe.go", os.environ, progress)
    cluster.load(scratch_image(_IMAGE, program, tmp_path_factory.mktemp("probe") / "probe.tar"))


def _pod(namespace: str, name: str, **spec: Any) -> Manifest:
    container = {"name": "probe", "image": _IMAGE, "imagePullPolicy": "IfNotPresent", **spec.pop("more", {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name, "labels": {"app": name}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0, **spec},
    }


def _service(namespace: str, name: str, app: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"selector": {"app": app}, "ports": [{"port": 80, "targetPort": 8080}]},
    }


def _run(kubectl: Kubectl, pod: Manifest) -> None:
    metadata = pod["metadata"]
    kubectl.apply(pod)
    where = (f"--namespace={metadata['namespace']}", f"pod/{metadata['name']}")
    kubectl("wait", "--for=condition=Ready", "--timeout=90s", *where)


def test_the_node_is_ready(kubectl: Kubectl) -> None:
    [node] = kubectl.get("nodes")["items"]
    conditions = {condition["type"]: condition["status"] for condition in node["status"]["conditions"]}
    assert conditions["Ready"] == "True"


def test_a_pod_of_a_loaded_image_runs_and_answers_exec_and_logs(kubectl: Kubectl, namespace: str) -> None:
    _run(kubectl, _pod(namespace, "server"))
    until(
        "the pod's first line is in its log",
        lambda: kubectl("logs", f"--namespace={namespace}", "server") == "serving as server\n",
    )
    asked = kubectl("exec", f"--namespace={namespace}", "server", "--", "/probe", "http://127.0.0.1:8080/")
    assert asked == "server\n"


def test_a_service_is_reached_by_its_name_from_another_pod_and_from_its_own(
    kubectl: Kubectl, namespace: str
) -> None:
    # Not the name of a pod, which that pod has in its /etc/hosts.
    kubectl.apply(_service(namespace, "front", app="server"))
    for name in ("server", "client"):
        _run(kubectl, _pod(namespace, name))
    for url in ("http://front/", f"http://front.{namespace}.svc.cluster.local/"):
        for pod in ("client", "server"):
            until(f"{pod} reaches {url}", partial(_answers, kubectl, namespace, pod, url))


def _answers(kubectl: Kubectl, namespace: str, pod: str, url: str) -> bool:
    asked = kubectl.attempt("exec", f"--namespace={namespace}", pod, "--", "/probe", url)
    return asked.stdout == "server\n"


def test_a_name_that_nobody_has_is_not_found_at_once(kubectl: Kubectl, namespace: str) -> None:
    _run(kubectl, _pod(namespace, "client"))
    said = kubectl.attempt(
        "exec", f"--namespace={namespace}", "client", "--", "/probe", "http://nobody.invalid/"
    )
    assert said.returncode != 0
    assert "no such host" in said.stderr


def test_a_deployment_makes_pods_under_restricted_pod_security(kubectl: Kubectl, namespace: str) -> None:
    kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    security = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    limits = {"memory": "64Mi", "cpu": "500m"}
    pod = _pod(namespace, "server", more={"securityContext": security, "resources": {"limits": limits}})
    template = {"metadata": {"labels": pod["metadata"]["labels"]}, "spec": pod["spec"]}
    del template["spec"]["terminationGracePeriodSeconds"]
    kubectl.apply(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"namespace": namespace, "name": "server"},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "server"}}, "template": template},
        }
    )
    kubectl("rollout", "status", f"--namespace={namespace}", "deployment/server", "--timeout=90s")


def test_a_claim_of_the_default_class_keeps_what_a_pod_wrote(kubectl: Kubectl, namespace: str) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"namespace": namespace, "name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    kubectl.apply(claim)
    mounts = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    pod = _pod(namespace, "keeper", volumes=volumes, more=mounts)
    inside = ("exec", f"--namespace={namespace}", "keeper", "--", "/probe", "/data/note")
    _run(kubectl, pod)
    kubectl(*inside, "remember me")
    kubectl("delete", "pod", f"--namespace={namespace}", "keeper")
    _run(kubectl, pod)
    assert kubectl(*inside) == "remember me"
