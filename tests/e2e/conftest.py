"""One cluster for the whole suite: `--cluster` says which."""

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from outbox_cli.local.services import to_stderr
from tests.cluster.choice import CHOICES
from tests.cluster.cluster import Cluster
from tests.cluster.cluster import cluster as start_cluster
from tests.cluster.programs import find_kubectl
from tests.e2e.kubectl import Kubectl


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cluster", default="auto", metavar=CHOICES, help="the cluster to run in")


@pytest.fixture(scope="session")
def progress(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Shows a line to whoever waits, although the output of tests is captured."""
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def show(line: str) -> None:
        with capture.global_and_fixture_disabled():
            to_stderr(line)

    return show


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest, progress: Callable[[str], None]) -> Iterator[Cluster]:
    """A real cluster that takes pods."""
    with start_cluster(progress, request.config.getoption("--cluster")) as started:
        yield started


@pytest.fixture(scope="session")
def kubectl(cluster: Cluster, progress: Callable[[str], None]) -> Kubectl:
    """kubectl, as the cluster's administrator."""
    return Kubectl(find_kubectl(os.environ, progress), Path(cluster.kubeconfig))


@pytest.fixture
def namespace(kubectl: Kubectl) -> Iterator[str]:
    """A namespace for one test."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    kubectl("create", "namespace", name)
    yield name
    kubectl("delete", "namespace", name, "--wait=false")
