"""What is collected where a test fails."""

from dataclasses import replace
from pathlib import Path

import yaml

from tests.e2e import evidence
from tests.e2e.kubectl import Kubectl, Manifest, until
from tests.images.catalogue import SHOP

_SECRET = "p4ss/w0rd-of-nobody"  # noqa: S105 - made up
_URL = "amqp://app:p4ss%2Fw0rd-of-nobody@rabbitmq:5672/"


def secret(namespace: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"namespace": namespace, "name": "login"},
        "stringData": {"uri": _URL, "port": "5672"},
    }


def chatterbox(namespace: str) -> Manifest:
    """A pod that tells what it must not, and ends."""
    program = f"import os, sys; print('I know', os.environ['URL'], 'and', {_SECRET!r}); sys.exit(3)"
    container = {
        "name": "chatterbox",
        "image": SHOP.name,
        "command": ["python", "-c", program],
        "env": [{"name": "URL", "valueFrom": {"secretKeyRef": {"name": "login", "key": "uri"}}}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": "chatterbox"},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
    }


def has_former_log(kubectl: Kubectl, folder: Path) -> bool:
    evidence.collect(kubectl, [folder.name], folder.parent)
    former = folder / "logs" / "chatterbox.previous.txt"
    return former.exists() and "I know <masked> and <masked>" in former.read_text()


def test_logs_events_and_resources_are_collected_without_what_is_secret(
    kubectl: Kubectl, namespace: str, tmp_path: Path
) -> None:
    kubectl.apply(secret(namespace), chatterbox(namespace))
    folder = tmp_path / namespace
    # The kubelet forgets one end when the next one comes.
    until("what the pod wrote before its restart is there", lambda: has_former_log(kubectl, folder))
    texts = {str(file.relative_to(folder)): file.read_text() for file in folder.rglob("*") if file.is_file()}
    assert "logs/chatterbox.txt" in texts
    assert "chatterbox" in texts["overview.txt"]
    assert "Started container chatterbox" in texts["events.txt"]
    assert "kind: Pod" in texts["resources.yaml"]
    assert "Exit Code:    3" in texts["describe.txt"]
    assert "secretKeyRef" in texts["resources.yaml"]
    # A cluster that does not know our kinds yet says so in place of a list.
    documents = list(yaml.safe_load_all(texts["resources.yaml"]))
    assert "List" in {document.get("kind") for document in documents}
    for name, text in texts.items():
        assert _SECRET not in text, name
        assert "p4ss%2Fw0rd" not in text, name


def test_each_test_has_a_folder_of_its_own() -> None:
    one = evidence.folder_of("tests/e2e/test_x.py::test_y[helm3]")
    other = evidence.folder_of("tests/e2e/test_x.py::test_y[helm4]")
    assert one != other
    assert one.parent == other.parent == evidence.FOLDER


def test_a_cluster_that_does_not_answer_is_told_of_and_hides_no_failure(
    kubectl: Kubectl, tmp_path: Path
) -> None:
    nowhere = tmp_path / "kubeconfig"
    nowhere.write_text("{}")
    said = evidence.collect_for(replace(kubectl, kubeconfig=nowhere), "tests/e2e/test_x.py::test_y")
    assert "the cluster could not be looked at: kubectl get namespaces" in said
