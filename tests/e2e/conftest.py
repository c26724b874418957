"""One cluster for the whole suite (`--cluster` says which), one operator in it, a shop for each module."""

import os
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from outbox_cli.local.services import to_stderr
from tests.chart.helm import Helm
from tests.cluster.choice import CHOICES
from tests.cluster.cluster import Cluster
from tests.cluster.cluster import cluster as start_cluster
from tests.cluster.programs import find_helm, find_kubectl
from tests.e2e import evidence
from tests.e2e.installation import NAMESPACE, Installation
from tests.e2e.kubectl import Kubectl
from tests.e2e.loading import load
from tests.e2e.namespaces import fresh_namespace, make_namespace
from tests.e2e.shop import Shop, open_shop
from tests.images.build import Built, build

_kubectl = pytest.StashKey[Kubectl]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cluster", default="auto", metavar=CHOICES, help="the cluster to run in")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Collect what there is to see while the failed test's pods are still there."""
    report = yield
    kubectl = item.config.stash.get(_kubectl, None)
    if report.failed and kubectl:
        report.sections.append(("cluster", evidence.collect_for(kubectl, item.nodeid)))
    return report


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
def kubectl(request: pytest.FixtureRequest, cluster: Cluster, progress: Callable[[str], None]) -> Kubectl:
    """kubectl, as the cluster's administrator."""
    found = Kubectl(find_kubectl(os.environ, progress), Path(cluster.kubeconfig))
    request.config.stash[_kubectl] = found
    return found


@pytest.fixture(scope="session")
def images(cluster: Cluster, kubectl: Kubectl, progress: Callable[[str], None]) -> Built:
    """The images of the project, its example and its services, known to the cluster."""
    built = build(progress)
    load(cluster, kubectl, built, progress)
    return built


@pytest.fixture(scope="session")
def helm(cluster: Cluster, progress: Callable[[str], None], tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm 3, on the cluster."""
    return Helm(find_helm(os.environ, progress, 3), tmp_path_factory.mktemp("helm"), cluster.kubeconfig)


@pytest.fixture(scope="session")
def installation(
    helm: Helm, kubectl: Kubectl, images: Built, progress: Callable[[str], None]
) -> Iterator[Installation]:
    """The operator, in a namespace that enforces restricted pod security. Who takes it away puts it back."""
    installed = Installation(helm, kubectl)
    # Of a run that was killed.
    installed.remove()
    make_namespace(kubectl, NAMESPACE)
    try:
        progress("installing the operator with Helm …")
        installed.install()
        yield installed
    finally:
        installed.remove()


@pytest.fixture(scope="module")
def shop(kubectl: Kubectl, installation: Installation, progress: Callable[[str], None]) -> Iterator[Shop]:
    """The example in a namespace of its own, ready for orders."""
    progress("opening a shop …")
    with open_shop(kubectl) as opened:
        yield opened


@pytest.fixture
def namespace(kubectl: Kubectl) -> Iterator[str]:
    """A namespace for one test."""
    with fresh_namespace(kubectl, restricted=False) as name:
        yield name
