"""One cluster for the whole suite (`--cluster` says which), one operator in it, a shop for each module.

With xdist the controller makes what they share and tells the workers of it.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import pytest
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

from outbox_cli.local.services import to_stderr
from tests.cluster.choice import CHOICES
from tests.cluster.cluster import Cluster
from tests.e2e import evidence
from tests.e2e.installation import Installation
from tests.e2e.kubectl import Kubectl
from tests.e2e.namespaces import fresh_namespace
from tests.e2e.shop import Shop, open_shop
from tests.e2e.stage import Stage, made, shared

_running = pytest.StashKey[ExitStack]()
_stage = pytest.StashKey[Stage]()
_kubectl = pytest.StashKey[Kubectl]()


_ON_THE_OPERATOR = {
    "test_installation.py",
    "test_keeping.py",
    "test_kills.py",
    "test_pages.py",
    "test_reinstallation.py",
    "test_rolling.py",
}
"""What does something to the operator, or looks closely at what it does: never two at a time."""


class _Node(Protocol):
    """An xdist worker, as its controller sees it."""

    config: pytest.Config
    workerinput: dict[str, Any]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cluster", default="auto", metavar=CHOICES, help="the cluster to run in")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: _Node) -> None:
    """In the xdist controller, before each worker starts."""
    if not node.config.option.collectonly:
        node.workerinput["stage"] = _made(node.config).told()


def pytest_unconfigure(config: pytest.Config) -> None:
    """End what this process made."""
    if running := config.stash.get(_running, None):
        running.close()


class _Scheduling(LoadFileScheduling):  # type: ignore[misc]
    """A module is run by one worker, as its tests share a shop; and so are all that concern the operator."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return "operator" if Path(file).name in _ON_THE_OPERATOR else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling:
    """In the xdist controller."""
    return _Scheduling(config, log)


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


def _progress(config: pytest.Config) -> Callable[[str], None]:
    capture = config.pluginmanager.getplugin("capturemanager")

    def show(line: str) -> None:
        with capture.global_and_fixture_disabled():
            to_stderr(line)

    return show


def _made(config: pytest.Config) -> Stage:
    """The stage of this process, made on first use."""
    if _stage not in config.stash:
        running = config.stash[_running] = ExitStack()
        asked = config.getoption("--cluster")
        config.stash[_stage] = running.enter_context(made(asked, _progress(config)))
    return config.stash[_stage]


@pytest.fixture(scope="session")
def progress(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Shows a line to whoever waits, although the output of tests is captured."""
    return _progress(request.config)


@pytest.fixture(scope="session")
def stage(request: pytest.FixtureRequest) -> Stage:
    """A cluster with an operator."""
    config = request.config
    workerinput = getattr(config, "workerinput", {})
    found = shared(workerinput["stage"], _progress(config)) if workerinput else _made(config)
    config.stash[_kubectl] = found.kubectl
    return found


@pytest.fixture(scope="session")
def cluster(stage: Stage) -> Cluster:
    """A real cluster that takes pods."""
    return stage.cluster


@pytest.fixture(scope="session")
def kubectl(stage: Stage) -> Kubectl:
    """kubectl, as the cluster's administrator."""
    return stage.kubectl


@pytest.fixture(scope="session")
def installation(stage: Stage) -> Installation:
    """The operator, in a namespace that enforces restricted pod security. Who takes it away puts it back."""
    return stage.installation


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
